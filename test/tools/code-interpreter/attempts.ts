/** A system call with its numbers on x86_64 and aarch64; null where an architecture lacks it. */
export interface Attempt {
  readonly name: string;
  readonly numbers: readonly [number | null, number | null];
  /** Numbers, or values that only the trying process knows. */
  readonly args: readonly (number | "path" | "structure" | "self" | "parent")[];
}

const AT_FDCWD = -100;

function attempt(
  name: string,
  numbers: Attempt["numbers"],
  ...args: Attempt["args"][number][]
): Attempt {
  return { name, numbers, args };
}

/** AF_UNIX, INET, NETLINK, VSOCK and all others that Linux knows. */
const FAMILIES = Array.from({ length: 46 }, (_, family) => family);

export const SOCKETS: readonly Attempt[] = FAMILIES.flatMap((family) =>
  // SOCK_STREAM, SOCK_DGRAM, SOCK_RAW.
  [1, 2, 3].map((type) => attempt(`socket ${family} ${type}`, [41, 198], family, type, 0)),
);

/** Calls that succeed for a process without a filter. */
export const HARMLESS: readonly Attempt[] = [
  attempt("openat to read", [257, 56], AT_FDCWD, "path", 0),
  attempt("socket 1 1", [41, 198], 1, 1, 0),
  attempt("socket 2 1", [41, 198], 2, 1, 0),
  attempt("socketpair", [53, 199], 1, 1, 0, "structure"),
  attempt("memfd_create", [319, 279], "path", 0),
  attempt("pipe2", [293, 59], "structure", 0),
  attempt("pidfd_open", [434, 434], "parent", 0),
  attempt("getppid's kill 0", [62, 129], "parent", 0),
  attempt("prctl PR_GET_DUMPABLE", [157, 167], 3),
  attempt("fcntl F_GETOWN", [72, 25], 0, 9),
  attempt("inotify_init1", [294, 26], 0),
];

/** Calls that no interpreter needs. */
export const HARMFUL: readonly Attempt[] = [
  attempt("open", [2, null], "path", 0),
  attempt("openat to write", [257, 56], AT_FDCWD, "path", 0x241, 0o600),
  attempt("openat2", [437, 437], AT_FDCWD, "path", "structure", 24),
  attempt("creat", [85, null], "path", 0o600),
  attempt("readlinkat", [267, 78], AT_FDCWD, "path", "structure", 100),
  attempt("newfstatat", [262, 79], AT_FDCWD, "path", "structure", 0),
  attempt("unlinkat", [263, 35], AT_FDCWD, "structure", 0),
  attempt("mkdirat", [258, 34], AT_FDCWD, "structure", 0),
  attempt("mknodat", [259, 33], AT_FDCWD, "structure", 0, 0),
  attempt("linkat", [265, 37], AT_FDCWD, "structure", AT_FDCWD, "structure", 0),
  attempt("open_by_handle_at", [304, 265], AT_FDCWD, "structure", 0),
  attempt("name_to_handle_at", [303, 264], AT_FDCWD, "path", "structure", "structure", 0),
  attempt("chdir", [80, 49], "path"),
  attempt("chroot", [161, 51], "path"),
  attempt("mount", [165, 40], "path", "path", "path", 0, 0),
  attempt("umount2", [166, 39], "path", 0),
  attempt("pivot_root", [155, 41], "path", "path"),
  attempt("fsopen", [430, 430], "path", 0),
  attempt("open_tree", [428, 428], AT_FDCWD, "path", 0),
  attempt("execve", [59, 221], "path", 0, 0),
  attempt("execveat", [322, 281], AT_FDCWD, "path", 0, 0, 0),
  attempt("fork", [57, null]),
  attempt("vfork", [58, null]),
  attempt("clone of a process", [56, 220], 17),
  attempt("clone into a new network", [56, 220], 0x40010900),
  attempt("clone with bits above", [56, 220], 0x100000900),
  attempt("unshare", [272, 97], 0x10000000),
  attempt("setns", [308, 268], 0, 0),
  attempt("ptrace TRACEME", [101, 117], 0),
  attempt("ptrace ATTACH", [101, 117], 16, "parent"),
  attempt("process_vm_readv", [310, 270], "parent", "structure", 1, "structure", 1, 0),
  attempt("process_vm_writev", [311, 271], "parent", "structure", 1, "structure", 1, 0),
  attempt("process_madvise", [440, 440], 0, "structure", 1, 4, 0),
  attempt("pidfd_getfd", [438, 438], 0, 0, 0),
  attempt("pidfd_send_signal", [424, 424], 0, 0, 0, 0),
  attempt("kill of the parent", [62, 129], "parent", 0),
  attempt("kill of itself", [62, 129], "self", 0),
  attempt("kill of all", [62, 129], -1, 0),
  attempt("tgkill of the parent", [234, 131], "parent", "parent", 0),
  attempt("tkill", [200, 130], "parent", 0),
  attempt("rt_sigqueueinfo", [129, 138], "parent", 0, "structure"),
  attempt("rt_tgsigqueueinfo", [297, 240], "parent", "parent", 0, "structure"),
  attempt("kcmp", [312, 272], "self", "parent", 0, 0, 0),
  attempt("connect", [42, 203], 0, "structure", 16),
  attempt("bind", [49, 200], 0, "structure", 16),
  attempt("listen", [50, 201], 0, 1),
  attempt("accept4", [288, 242], 0, 0, 0, 0),
  attempt("sendmsg", [46, 211], 1, "structure", 0),
  attempt("recvmsg", [47, 212], 0, "structure", 0),
  attempt("sendmmsg", [307, 269], 1, "structure", 1, 0),
  attempt("sendto an address", [44, 206], 1, "structure", 0, 0, "structure", 16),
  attempt("setsockopt", [54, 208], 1, 1, 2, "structure", 4),
  attempt("bpf", [321, 280], 0, "structure", 48),
  attempt("perf_event_open", [298, 241], "structure", 0, -1, -1, 0),
  attempt("userfaultfd", [323, 282], 1),
  attempt("keyctl", [250, 219], 0, -3, 0),
  attempt("add_key", [248, 217], "path", "path", "structure", 1, -3),
  attempt("request_key", [249, 218], "path", "path", 0, -3),
  attempt("io_uring_setup", [425, 425], 1, "structure"),
  attempt("io_uring_enter", [426, 426], 0, 0, 0, 0, 0),
  attempt("io_uring_register", [427, 427], 0, 0, 0, 0),
  attempt("io_setup", [206, 0], 1, "structure"),
  attempt("seccomp", [317, 277], 1, 0, "structure"),
  attempt("prctl PR_SET_DUMPABLE", [157, 167], 4, 1),
  attempt("prctl PR_SET_PDEATHSIG", [157, 167], 1, 0),
  attempt("prctl PR_SET_PTRACER", [157, 167], 0x59616d61, -1),
  attempt("prlimit64 of the parent", [302, 261], "parent", 7, 0, "structure"),
  attempt("prlimit64 of itself", [302, 261], 0, 7, "structure", 0),
  attempt("setrlimit", [160, 164], 7, "structure"),
  attempt("setpriority", [141, 140], 0, 0, 0),
  attempt("sched_setaffinity", [203, 122], 0, 8, "structure"),
  attempt("setuid", [105, 146], 0),
  attempt("setresuid", [117, 147], 0, 0, 0),
  attempt("capset", [126, 91], "structure", "structure"),
  attempt("fcntl F_SETOWN", [72, 25], 0, 8, "parent"),
  attempt("fcntl F_SETSIG", [72, 25], 0, 10, 9),
  attempt("ioctl TIOCSTI", [16, 29], 0, 0x5412, "structure"),
  attempt("shmget", [29, 194], 0, 4096, 0o1600),
  attempt("msgget", [68, 186], 0, 0o1600),
  attempt("semget", [64, 190], 0, 1, 0o1600),
  attempt("mq_open", [240, 180], "path", 0x42, 0o600, 0),
  attempt("fanotify_init", [300, 262], 0, 0),
  attempt("init_module", [175, 105], "structure", 1, "path"),
  attempt("kexec_load", [246, 104], 0, 0, 0, 0),
  attempt("reboot", [169, 142], 0, 0, 0, 0),
  attempt("sethostname", [170, 161], 0, -1),
  attempt("settimeofday", [164, 170], 0, 0),
  attempt("clock_settime", [227, 112], 0, 0),
  attempt("landlock_create_ruleset", [444, 444], 0, 0, 1),
  attempt("memfd_secret", [447, 447], 0),
  attempt("a call of a later kernel", [900, 900]),
];
