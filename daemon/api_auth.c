/* Who may ask over TCP: the bearer of a token, or of a certificate that the configured authority signed. */
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "daemon/api_internal.h"

#define MAX_TOKEN_FILE (64u << 10)
#define MIN_TOKEN      16

static int add_token(struct api *a, const char *path, const char *token)
{
        if (strlen(token) < MIN_TOKEN) {
                log_error("TokenFile=%s: a token has fewer than %d characters; make one with: openssl rand "
                          "-hex 32",
                          path, MIN_TOKEN);
                return -EINVAL;
        }
        if (a->n_tokens == API_MAX_TOKENS) {
                log_error("TokenFile=%s: more than %d tokens", path, API_MAX_TOKENS);
                return -E2BIG;
        }
        if (gnutls_hash_fast(GNUTLS_DIG_SHA256, token, strlen(token), a->token[a->n_tokens].sha256) < 0)
                return -EIO;
        a->n_tokens++;
        return 0;
}

/* One token a line, so that an old and a new one can be valid together; a line of '#' is a comment. */
int api_read_tokens(struct api *a, const char *path)
{
        _cleanup_buf_ struct buf b = {0};
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        char *save = NULL;

        int r = fd < 0 || fstat(fd, &st) < 0 ? -errno : read_fd(fd, MAX_TOKEN_FILE, &b);
        if (r < 0) {
                log_error("TokenFile=%s: %s", path, strerror(-r));
                return r;
        }
        if (st.st_mode & 077)
                log_warning("TokenFile=%s: others can read it; chmod 600 it", path);
        for (char *t = b.len ? strtok_r(b.data, "\r\n", &save) : NULL; t && r == 0;
             t = strtok_r(NULL, "\r\n", &save)) {
                t += strspn(t, " \t");
                t[strcspn(t, " \t")] = 0;
                if (*t && *t != '#')
                        r = add_token(a, path, t);
        }
        if (b.len)
                gnutls_memset(b.data, 0, b.len);
        if (r == 0 && a->n_tokens == 0) {
                log_error("TokenFile=%s: there is no token in it", path);
                r = -EINVAL;
        }
        return r;
}

/* Hashes are compared, all of them, each in constant time: how long it takes tells neither how much of a
 * token was right nor which one. */
static bool is_token(const struct api *a, const void *text, size_t n)
{
        uint8_t hash[32];
        bool found = false;

        if (gnutls_hash_fast(GNUTLS_DIG_SHA256, text, n, hash) < 0)
                return false;
        for (uint32_t i = 0; i < a->n_tokens; i++)
                found |= gnutls_memcmp(hash, a->token[i].sha256, sizeof(hash)) == 0;
        return found;
}

/* `go tool pprof` can send a user and a password of the URL, and no header: the password is the token. */
static bool is_basic(const struct api *a, const char *encoded)
{
        const gnutls_datum_t text = {(unsigned char *)(uintptr_t)encoded, (unsigned)strlen(encoded)};
        gnutls_datum_t plain;

        if (gnutls_base64_decode2(&text, &plain) < 0)
                return false;
        const unsigned char *colon = memchr(plain.data, ':', plain.size);
        bool found = colon && is_token(a, colon + 1, (size_t)(plain.data + plain.size - colon - 1));
        gnutls_memset(plain.data, 0, plain.size);
        gnutls_free(plain.data);
        return found;
}

static bool has_token(const struct api *a, const char *header)
{
        bool basic = header && strncasecmp(header, "Basic ", 6) == 0;

        if (!header || (!basic && strncasecmp(header, "Bearer ", 7) != 0))
                return false;
        header += basic ? 6 : 7;
        header += strspn(header, " ");
        return basic ? is_basic(a, header) : is_token(a, header, strlen(header));
}

static bool has_certificate(const struct api *a, struct MHD_Connection *c)
{
        static const char purpose[] = GNUTLS_KP_TLS_WWW_CLIENT;
        gnutls_typed_vdata_st data = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                      .data = (unsigned char *)(uintptr_t)purpose,
                                      .size = 0};
        const union MHD_ConnectionInfo *info;
        unsigned status = 0, n = 0;

        if (!a->has_client_ca || !(info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_GNUTLS_SESSION)))
                return false;
        gnutls_session_t session = info->tls_session;
        return gnutls_certificate_get_peers(session, &n) && n > 0 &&
               gnutls_certificate_verify_peers(session, &data, 1, &status) == GNUTLS_E_SUCCESS &&
               status == 0;
}

bool api_authorized(const struct api *a, struct MHD_Connection *c)
{
        return has_token(a,
                         MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION)) ||
               has_certificate(a, c);
}
