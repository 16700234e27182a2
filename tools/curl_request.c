#include "tools/curl_request.h"

#define CONNECT_TIMEOUT 10L /* s */

CURL *curl_request_new(const char *url, char detail[CURL_ERROR_SIZE])
{
        CURL *curl = curl_easy_init();

        if (!curl)
                return NULL;
        curl_easy_setopt(curl, CURLOPT_URL, url);
        curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT);
        curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
        curl_easy_setopt(curl, CURLOPT_USERAGENT, "profctl/" PROFD_VERSION);
        return curl;
}

void curl_request_certificates(CURL *curl, const char *ca, const char *certificate, const char *key)
{
        if (ca)
                curl_easy_setopt(curl, CURLOPT_CAINFO, ca);
        if (certificate)
                curl_easy_setopt(curl, CURLOPT_SSLCERT, certificate);
        if (key)
                curl_easy_setopt(curl, CURLOPT_SSLKEY, key);
}
