# What a guest runs: the programs of the tests, the installed package, and an initramfs of both.
# shellcheck shell=bash disable=SC2154 # $work, $build, $top and $here are the caller's

# What runs in the guest, in $work/bin-ARCHITECTURE. x86-64: as built. arm64: compiled here, statically.
programs="deep_static signals_static split31 forks hold_counters"
build_programs() {
        local arch=$1 bin=$work/bin-$1 cc source
        rm -rf "$bin" && mkdir -p "$bin"
        if [ "$arch" = amd64 ]; then
                for program in $programs; do
                        cp "$build/tests/programs/$program" "$bin/" || return 1
                done
                cp "$build/tests/bpf/smoke" "$build/tests/truth/truth_run" "$build/symbolizer/profd-worker" "$bin/"
                return
        fi
        get_sysroot || return 1
        cc=(clang --target=aarch64-linux-gnu --sysroot="$work/arm64-root" -fuse-ld=lld -static -O2 -g1 -std=gnu11 -D_GNU_SOURCE
                -DPROFD_VERSION='"test"' -DPROFD_LIBEXECDIR='"/t"' -Wno-everything -I "$top" -I "$build" -I "$build/bpf"
                -isystem "$work/arm64-root/usr/include" -isystem "$work/arm64-root/usr/include/aarch64-linux-gnu")
        cd "$top" || return 1
        "${cc[@]}" -fno-optimize-sibling-calls -o "$bin/smoke" tests/bpf/smoke.c tests/bpf/own_text.c tests/bpf/keep_nothing.c daemon/events.c \
                daemon/sampler*.c base/{buf,idtable,io,log,parse}.c -lbpf -lelf -lz || return 1
        "${cc[@]}" -o "$bin/profd-worker" symbolizer/*.c base/*.c -lelf -lz -lzstd -llzma -lseccomp -liberty || return 1
        source=$(ls symbolizer/*.c | grep -v -e worker.c -e sandbox.c)
        # shellcheck disable=SC2086
        "${cc[@]}" -o "$bin/truth_run" tests/truth/*.c tests/bpf/keep_nothing.c daemon/{events,kept_raws,kept_state}.c daemon/sampler*.c daemon/object_*.c daemon/process_*.c \
                daemon/tracker*.c daemon/unwind_*.c $source base/*.c -lbpf -lelf -lz -lzstd -llzma -liberty -lpthread -lm || return 1
        for program in $programs; do
                source=${program%_static}
                "${cc[@]}" -fomit-frame-pointer -o "$bin/$program" "tests/programs/$source.c" || return 1
        done
}

# The installed package of an architecture, in $work/payload-ARCHITECTURE. x86-64: the .deb. arm64: what the build of
# the package installs, cross-compiled.
make_payload() {
        local arch=$1 dir=$work/payload-$1 deb
        rm -rf "$dir" && mkdir -p "$dir"
        if [ "$arch" = amd64 ]; then
                deb=$("$top/tests/systemd/package" "$build") && dpkg-deb -x "$deb" "$dir"
                return
        fi
        get_sysroot || return 1
        cat >"$work/arm64-cc" <<END || return 1
#!/bin/sh
exec clang --target=aarch64-linux-gnu --sysroot=$work/arm64-root -fuse-ld=lld -Qunused-arguments "\$@"
END
        chmod +x "$work/arm64-cc"
        cat >"$work/arm64.cross" <<END || return 1
[binaries]
c = '$work/arm64-cc'
ar = 'llvm-ar'
strip = 'llvm-strip'
pkgconfig = 'pkg-config'
[properties]
sys_root = '$work/arm64-root'
pkg_config_libdir = ['$work/arm64-root/usr/lib/aarch64-linux-gnu/pkgconfig', '$work/arm64-root/usr/share/pkgconfig']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
        [ -e "$work/arm64-build/build.ninja" ] || meson setup "$work/arm64-build" "$top" --cross-file "$work/arm64.cross" \
                --prefix=/usr -Dtests=disabled -Dunitdir=/lib/systemd/system || return 1
        ninja -C "$work/arm64-build" && DESTDIR=$dir meson install -C "$work/arm64-build" --no-rebuild --strip
}

# copy_libraries ARCHITECTURE ROOT FILE...: what the files need to run, and what that needs.
copy_libraries() {
        local arch=$1 root=$2 from=/ triplet=x86_64-linux-gnu loader=lib64/ld-linux-x86-64.so.2 name dir
        local -a files
        shift 2
        files=("$@")
        [ "$arch" = amd64 ] || { from=$work/arm64-root/ triplet=aarch64-linux-gnu loader=lib/ld-linux-aarch64.so.1; }
        mkdir -p "$root/lib/$triplet" "$root/$(dirname $loader)"
        cp -L "$from$loader" "$root/$loader" || return 1
        while [ ${#files[@]} -gt 0 ]; do
                local -a found=()
                for name in $(readelf -d "${files[@]}" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
                        [ ! -e "$root/lib/$triplet/$name" ] || continue
                        for dir in lib/$triplet usr/lib/$triplet; do
                                [ ! -e "$from$dir/$name" ] || cp -L "$from$dir/$name" "$root/lib/$triplet/$name"
                        done
                        [ -e "$root/lib/$triplet/$name" ] || return 1
                        found+=("$root/lib/$triplet/$name")
                done
                files=("${found[@]}")
        done
}

# make_debian OUTPUT: Debian with systemd as its first process, the package and the programs in /t, and guest/debian.sh
# to be run when it is up.
make_debian() {
        local out=$1 root=$work/debian deb
        deb=$("$top/tests/systemd/package" "$build") && get_debian bookworm "$deb" || return 1
        rm -rf "$root" && mkdir -p "$root" && tar -xf "$work/debian.tar" -C "$root" || return 1
        rm -rf "$root"/dev/* "$root/etc/systemd/system/getty.target.wants" "$root"/var/cache/apt "$root"/usr/lib/udev/hwdb*
        ln -sf lib/systemd/systemd "$root/init"
        mkdir -p "$root/t" "$root/etc/systemd/system/multi-user.target.wants"
        cp "$here"/guest/{check,profd,debian}.sh "$build/tests/programs/split31" "$root/t/" && cp "$deb" "$root/t/profd.deb" || return 1
        cat >"$root/etc/systemd/system/profd-test.service" <<END
[Unit]
After=multi-user.target
[Service]
Type=idle
ExecStart=/bin/bash /t/debian.sh
[Install]
WantedBy=multi-user.target
END
        ln -sf ../profd-test.service "$root/etc/systemd/system/multi-user.target.wants/"
        (cd "$root" && find . | cpio -o -H newc --quiet) >"$out"
        rm -rf "$root"
}

# make_initramfs ARCHITECTURE OUTPUT EXTRA...: busybox, the programs, the package, what they are linked with, and the
# scripts of the guest.
make_initramfs() {
        local arch=$1 out=$2 root=$work/initramfs-$1 from=
        shift 2
        [ "$arch" = amd64 ] || from=$work/arm64-root
        rm -rf "$root" && mkdir -p "$root"/{bin,t,proc,sys,dev,tmp,run,root,var/lib,var/cache,usr/bin,usr/sbin}
        cp -r "$work/payload-$arch"/. "$root/" || return 1
        rm -rf "$root/usr/share"
        cp -L "$(ls -d "$from"/usr/bin/busybox "$from"/bin/busybox 2>/dev/null | head -1)" "$root/bin/busybox" && ln -s busybox "$root/bin/sh" || return 1
        cp -L "$from/usr/bin/setpriv" "$from/usr/bin/unshare" "$root/usr/bin/" || return 1
        copy_libraries "$arch" "$root" "$root"/usr/bin/* "$root"/usr/sbin/* "$root"/usr/libexec/profd/* \
                "$work/bin-$arch"/* || return 1
        printf '%s\n' root:x:0:0::/root:/bin/sh profd:x:990:990::/var/lib/profd:/bin/false alice:x:1001:1001::/:/bin/sh \
                nobody:x:65534:65534::/:/bin/false >"$root/etc/passwd"
        printf '%s\n' root:x:0: profd:x:990: alice:x:1001: nogroup:x:65534: >"$root/etc/group"
        cp "$here/init" "$root/init"
        cp "$here"/guest/*.sh "$work/bin-$arch"/* "$@" "$root/t/" || return 1
        (cd "$root" && find . | cpio -o -H newc --quiet) >"$out"
}
