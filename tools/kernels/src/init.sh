#!/bin/busybox sh
# The first process of a guest: the host's root, read-only, under an overlay in memory; then run.sh in it.
b=/bin/busybox
$b mkdir -p /proc /sys /dev /ro /rw /new
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
while read -r module; do $b insmod "/modules/$module"; done </modules.order
$b mount -t virtiofs -o ro hostroot /ro
$b mount -t tmpfs tmpfs /rw
$b mkdir /rw/upper /rw/work
$b mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work overlay /new
for folder in proc sys dev; do $b mount -o move /$folder /new/$folder; done
$b mount -t tmpfs tmpfs /new/run
$b mkdir -p /new/dev/pts /new/dev/shm
$b mount -t devpts devpts /new/dev/pts
$b mount -t tmpfs tmpfs /new/dev/shm
$b mount -t bpf bpf /new/sys/fs/bpf
$b mount -t cgroup2 cgroup2 /new/sys/fs/cgroup
$b mount -t tracefs tracefs /new/sys/kernel/tracing
$b ip link set lo up
$b cp /run.sh /new/run/run.sh
# A redirect to a device that is not there would quietly make a file: the report would be lost without a word.
if [ -c /new/dev/ttyS1 ]; then
  $b chroot /new /bin/sh /run/run.sh >/new/dev/ttyS1 2>&1 </new/dev/null
else
  echo "no second serial port"
fi
$b reboot -f
