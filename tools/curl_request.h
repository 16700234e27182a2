/* What every request that profctl makes has in common. */
#ifndef TOOLS_CURL_REQUEST_H
#define TOOLS_CURL_REQUEST_H

#include <curl/curl.h>

/* A handle for http and https only, with profctl's name and a time to connect; `detail` is where curl says
 * what went wrong. NULL: out of memory. */
CURL *curl_request_new(const char *url, char detail[CURL_ERROR_SIZE]);

/* Certificates that sign the server's, and one to show it with its key; each may be NULL. */
void curl_request_certificates(CURL *curl, const char *ca, const char *certificate, const char *key);

#endif
