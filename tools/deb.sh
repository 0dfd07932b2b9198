#!/bin/sh
# A Debian package of what is built: tools/deb.sh BUILD makes BUILD/restored_VERSION_ARCHITECTURE.deb and prints its path.
# It takes dpkg-dev alone. MAINTAINER is "NAME <ADDRESS>"; by default who committed last.
set -eu
cd "$(dirname "$0")/.."
build=$1 root=$1/deb/root
umask 022
rm -rf "$build/deb"
mkdir -p "$root/DEBIAN" "$build/deb/debian"
version=$(sed -n 's/^#define RESTORED_VERSION "\(.*\)"/\1/p' server/version.h)-1
architecture=$(dpkg --print-architecture)
maintainer=${MAINTAINER:-$(git log -1 --format='%an <%ae>' 2>/dev/null || echo 'restored <root@localhost>')}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

${MAKE:-make} -s install DESTDIR="$(pwd)/$root" PREFIX=/usr SYSCONFDIR=/etc UNITDIR=/lib/systemd/system >/dev/null
strip --remove-section=.comment --remove-section=.note "$root/usr/bin/restored"
doc=$root/usr/share/doc/restored
rm "$doc/LICENSE" "$doc/LICENSE.starter-models" "$doc/models/starter/LICENSE"
rmdir "$doc/models/starter"
ln -s copyright "$doc/LICENSE" # README links to it
cp config/debian/copyright "$doc/copyright"
gzip -9n "$root"/usr/share/man/man1/*.1
printf 'restored (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' "$version" "$maintainer" \
    "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.Debian.gz"

echo /etc/restored/restored.conf >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m755 "config/debian/$script" "$root/DEBIAN/$script"; done
(cd "$root" && find etc lib usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2 >DEBIAN/md5sums)
# which packages have the libraries, and from which version on what is used of them; it wants a source's control file
printf 'Source: restored\n\nPackage: restored\nArchitecture: any\n' >"$build/deb/debian/control"
libraries=$(cd "$build/deb" && dpkg-shlibdeps -O --ignore-missing-info root/usr/bin/restored 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[ "$libraries" ]
sed "s|@VERSION@|$version|; s|@ARCHITECTURE@|$architecture|; s|@MAINTAINER@|$maintainer|; s|@LIBRARIES@|$libraries|;
    s|@SIZE@|$(du -sk --exclude=DEBIAN "$root" | cut -f 1)|" config/debian/control >"$root/DEBIAN/control"
# xz spares nothing at the models, and takes long over them
dpkg-deb --root-owner-group -Zxz -z1 --build "$root" "$build/restored_${version}_$architecture.deb" >/dev/null
echo "$build/restored_${version}_$architecture.deb"
