#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "daemon/api_internal.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59 /* Linux 4.13, include/uapi/asm-generic/socket.h */
#endif

#define BACKLOG    128
#define MAX_GROUPS 65536 /* NGROUPS_MAX */

/* Whether somebody listens at a path that is in the way. */
static bool is_served(const struct sockaddr_un *address)
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        return fd >= 0 &&
               (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN);
}

int api_listen_local(struct api *a, const char *path, int *ret_fd)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct stat st;
        int r = 0;

        if (fd < 0)
                return -errno;
        if (strlen(path) >= sizeof(address.sun_path)) {
                log_error("Socket %s: longer than the %zu characters that the kernel takes; choose a "
                          "shorter path",
                          path, sizeof(address.sun_path) - 1);
                return -ENAMETOOLONG;
        }
        strcpy(address.sun_path, path);
        if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
                if (is_served(&address)) {
                        log_error("Socket %s: another process serves it; is profd running already?", path);
                        return -EADDRINUSE;
                }
                unlink(path); /* of a daemon that was killed */
        }
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                r = -errno;
        /* Anybody may ask: what they get depends on who they are. */
        else if (chmod(path, 0666) < 0 || listen(fd, BACKLOG) < 0) {
                r = -errno;
                unlink(path);
        }
        if (r < 0) {
                log_error("Socket %s: %s%s", path, strerror(-r),
                          r == -ENOENT   ? "; make its directory, or choose another path with --socket"
                          : r == -EACCES ? "; start profd as root, or choose another path with --socket"
                                         : "");
                return r;
        }
        a->socket_path = strdup(path);
        *ret_fd = TAKE_FD(fd);
        return 0;
}

/* "host:port", "[::1]:port", ":port". */
static int split_address(const char *text, char host[256], char port[16])
{
        const char *colon = strrchr(text, ':');
        size_t n;

        if (!colon || strlen(colon + 1) == 0 || strlen(colon + 1) > 15)
                return -EINVAL;
        n = (size_t)(colon - text);
        if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
                text++;
                n -= 2;
        }
        if (n >= 256)
                return -EINVAL;
        memcpy(host, text, n);
        host[n] = 0;
        strcpy(port, colon + 1);
        return 0;
}

static int bind_one(const struct addrinfo *ai)
{
        _cleanup_close_ int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int one = 1;

        if (fd < 0)
                return -errno;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
                return -errno;
        return TAKE_FD(fd);
}

int api_listen_tcp(const char *address, int *ret_fd)
{
        struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
        struct addrinfo *found = NULL;
        char host[256], port[16];
        int fd = -EADDRNOTAVAIL;

        if (split_address(address, host, port) < 0) {
                log_error("Listen=%s: not of the form host:port", address);
                return -EINVAL;
        }
        int e = getaddrinfo(*host ? host : NULL, port, &hints, &found);
        if (e != 0) {
                log_error("Listen=%s: %s", address, gai_strerror(e));
                return -EINVAL;
        }
        /* Without a host the IPv6 socket, which takes IPv4 too, is better than the IPv4 one. */
        for (int family = *host ? AF_UNSPEC : AF_INET6; fd < 0; family = AF_UNSPEC) {
                for (const struct addrinfo *ai = found; ai && fd < 0; ai = ai->ai_next)
                        if (family == AF_UNSPEC || ai->ai_family == family)
                                fd = bind_one(ai);
                if (family == AF_UNSPEC)
                        break;
        }
        freeaddrinfo(found);
        if (fd < 0) {
                log_error("Listen=%s: %s", address, strerror(-fd));
                return fd;
        }
        *ret_fd = fd;
        return 0;
}

int api_find_group(struct api *a, const char *name)
{
        char room[4096];
        struct group g, *found = NULL;

        if (!name || !*name)
                return 0;
        int r = getgrnam_r(name, &g, room, sizeof(room), &found);
        if (r == 0 && found) {
                a->group = g.gr_gid;
                a->has_group = true;
        } else {
                log_notice("There is no group %s: on the local socket only root sees the samples of all "
                           "users",
                           name);
        }
        return 0;
}

static bool in_group(int fd, gid_t primary, gid_t group)
{
        _cleanup_free_ gid_t *groups = NULL;
        socklen_t size = 0;

        if (primary == group)
                return true;
        /* The first call tells the size. */
        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) == 0 || errno != ERANGE ||
            size > MAX_GROUPS * sizeof(gid_t))
                return false;
        groups = malloc(size);
        if (!groups || getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0)
                return false;
        for (size_t i = 0; i < size / sizeof(gid_t); i++)
                if (groups[i] == group)
                        return true;
        return false;
}

static uint64_t client_of_address(int fd)
{
        struct sockaddr_storage s;
        socklen_t size = sizeof(s);

        if (getpeername(fd, (struct sockaddr *)&s, &size) < 0)
                return 0;
        if (s.ss_family == AF_INET) {
                const struct sockaddr_in *in = (const struct sockaddr_in *)&s;
                return hash_u64(in->sin_addr.s_addr, 4);
        }
        /* A host has all of a /64. */
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&s;
        return s.ss_family == AF_INET6
                               ? hash_bytes(&in6->sin6_addr, IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) ? 16 : 8)
                               : 0;
}

void api_identify(const struct api *a, int fd, struct api_connection *c)
{
        struct sockaddr_storage s;
        socklen_t size = sizeof(s), cred_size = sizeof(struct ucred);
        struct ucred cred;

        c->fd = fd;
        c->peer = (struct api_peer){.uid = (uid_t)-1};
        if (getsockname(fd, (struct sockaddr *)&s, &size) < 0 || s.ss_family != AF_UNIX) {
                c->tcp = true;
                c->client = client_of_address(fd);
                return;
        }
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_size) < 0)
                return;
        c->peer.uid = cred.uid;
        c->peer.all = cred.uid == 0 || (a->has_group && in_group(fd, cred.gid, a->group));
        c->client = hash_u64(cred.uid, 1);
}
