# Kernels and libraries of other machines, from the distribution mirror that this machine's apt uses: an apt of its own,
# with lists and archives under $work; nothing is installed.
# shellcheck shell=bash disable=SC2154 # $work is the caller's

# private_apt ARCHITECTURE SUITE TOOL ARGUMENT...: knows one suite of one architecture.
private_apt() {
        local arch=$1 suite=$2 tool=$3 dir=$work/apt/$1-$2
        shift 3
        "$tool" -q -o APT::Architecture="$arch" -o APT::Architectures="$arch" \
                -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null \
                -o Dir::State="$dir/state" -o Dir::State::lists="$dir/lists" -o Dir::State::status="$dir/state/status" \
                -o Dir::Cache="$dir/cache" -o Acquire::Languages=none -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@"
}

# Its lists, from where this machine gets its own.
prepare_apt() {
        local arch=$1 suite=$2 dir=$work/apt/$1-$2 uri
        [ -e "$dir/ready" ] && return 0
        mkdir -p "$dir"/{lists,cache/archives,state}/partial
        : >"$dir/state/status"
        case $suite in
        *-security) uri=$(apt-get indextargets --format '$(REPO_URI) $(SUITE)' | awk '/security/ { print $1; exit }') ;;
        *) uri=$(apt-get indextargets --format '$(REPO_URI)' | grep -m1 '/debian/*$') ;;
        esac
        [ -n "$uri" ] || return 1
        echo "deb $uri $suite main" >"$dir/sources.list"
        private_apt "$arch" "$suite" apt-get update >"$dir/update.log" 2>&1 || return 1
        touch "$dir/ready"
}

# unpack ARCHITECTURE SUITE DIRECTORY PACKAGE...
unpack() {
        local arch=$1 suite=$2 dir=$3
        shift 3
        mkdir -p "$dir.debs" "$dir"
        (cd "$dir.debs" && private_apt "$arch" "$suite" apt-get download "$@") >"$dir.log" 2>&1 || return 1
        for deb in "$dir.debs"/*.deb; do
                dpkg-deb -x "$deb" "$dir" || return 1
        done
        rm -rf "$dir.debs"
}

# Where a kernel's files are; the metapackage names them, in the newest ones by one package more.
get_kernel() {
        local name=$1 arch=$2 suite=$3 meta=$4 dir=$work/$1 packages
        [ -e "$dir/ready" ] && return 0
        prepare_apt "$arch" "$suite" || return 1
        packages=$(private_apt "$arch" "$suite" apt-cache depends --recurse --no-suggests --no-recommends --no-breaks \
                --no-conflicts --no-replaces "$meta" 2>/dev/null | grep -E '^linux-(image|binary|modules)-[0-9]' | sort -u)
        [ -n "$packages" ] || return 1
        # shellcheck disable=SC2086 # a list of packages
        unpack "$arch" "$suite" "$dir" $packages || return 1
        touch "$dir/ready"
}

# get_debian SUITE DEB: $work/debian.tar, a Debian with what the package needs, installed as Debian installs it.
get_debian() {
        local suite=$1 deb=$2 needs
        [ -e "$work/debian.ready" ] && return 0
        command -v mmdebstrap >/dev/null && prepare_apt amd64 "$suite" || return 1
        needs=$(dpkg-deb -f "$deb" Depends | sed 's/([^)]*)//g; s/|[^,]*//g; s/ //g')
        mmdebstrap --quiet --variant=essential --architectures=amd64 --include="systemd-sysv,dbus,procps,$needs" \
                --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
                --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$work/debian.tar" "$(cat "$work/apt/amd64-$suite/sources.list")" \
                >"$work/debian.log" 2>&1 && touch "$work/debian.ready"
}

# What to build for arm64 with, and what an installation there is linked with: all of it, resolved by apt.
get_sysroot() {
        local dir=$work/arm64-root archives=$work/apt/arm64-bookworm/cache/archives
        [ -e "$dir/ready" ] && return 0
        prepare_apt arm64 bookworm || return 1
        mkdir -p "$dir"
        private_apt arm64 bookworm apt-get -y --no-install-recommends --download-only install libc6-dev libgcc-12-dev \
                libbpf-dev libelf-dev libdw-dev zlib1g-dev libzstd-dev liblzma-dev libseccomp-dev libiberty-dev \
                libxxhash-dev libdeflate-dev libmicrohttpd-dev libgnutls28-dev libsystemd-dev libcap-dev \
                libcurl4-gnutls-dev libncurses-dev libcapstone-dev libjson-c-dev busybox-static util-linux \
                >"$dir.log" 2>&1 || return 1
        for deb in "$archives"/*.deb; do
                dpkg-deb -x "$deb" "$dir" || return 1
        done
        rm -f "$archives"/*.deb
        touch "$dir/ready"
}
