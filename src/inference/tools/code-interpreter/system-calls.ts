/**
 * The system call filter (seccomp, classic BPF) that the Python process sets for itself. Every call that is
 * not listed fails with EPERM, including calls that a later kernel adds. The listed calls let a process
 * compute, use its memory and pipes, read the time, and exit.
 */

export type Architecture = "x64" | "arm64";

interface ArchitectureFacts {
  /** AUDIT_ARCH_… of linux/audit.h. */
  readonly auditArchitecture: number;
  /** The index of the architecture's number in `Numbers`. */
  readonly column: 0 | 1;
}

const ARCHITECTURES: Readonly<Record<Architecture, ArchitectureFacts>> = {
  x64: { auditArchitecture: 0xc000003e, column: 0 },
  arm64: { auditArchitecture: 0xc00000b7, column: 1 },
};

/** Numbers on x86_64 and aarch64. Null if an architecture does not have the call. */
type Numbers = readonly [number | null, number | null];

/** A condition on an argument. It compares the low half; the high half must be 0. */
interface Condition {
  readonly argument: number;
  /** The allowed values. */
  readonly oneOf?: readonly number[];
  /** Bits that must be set, and bits that must be clear. */
  readonly bits?: { readonly set: number; readonly clear: number };
}

interface AllowedCall {
  readonly numbers: Numbers;
  readonly when?: readonly Condition[];
}

const F_GETFD = 1;
const F_SETFD = 2;
const F_GETFL = 3;
const F_SETFL = 4;
const F_DUPFD_CLOEXEC = 1030;
const PR_SET_NAME = 15;
const CLONE_VM_SIGHAND_THREAD = 0x00000100 | 0x00000800 | 0x00010000;
/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, and CLONE_PIDFD, PTRACE. */
const CLONE_NAMESPACES =
  0x00020000 |
  0x02000000 |
  0x04000000 |
  0x08000000 |
  0x10000000 |
  0x20000000 |
  0x40000000 |
  0x00001000 |
  0x00002000;

/**
 * Returns the allowed calls.
 *
 * @param processId id of the process itself, which can send signals to its own threads
 */
function allowedCalls(processId: number): Readonly<Record<string, AllowedCall>> {
  return {
    read: { numbers: [0, 63] },
    write: { numbers: [1, 64] },
    readv: { numbers: [19, 65] },
    writev: { numbers: [20, 66] },
    close: { numbers: [3, 57] },
    fstat: { numbers: [5, 80] },
    poll: { numbers: [7, null] },
    ppoll: { numbers: [271, 73] },
    lseek: { numbers: [8, 62] },
    // Ends of the pipes, which Bun creates as socket pairs. Neither an address nor control data is allowed.
    sendto: { numbers: [44, 206], when: [{ argument: 4, oneOf: [0] }] },
    recvfrom: { numbers: [45, 207], when: [{ argument: 4, oneOf: [0] }] },
    fcntl: {
      numbers: [72, 25],
      when: [{ argument: 1, oneOf: [F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC] }],
    },

    mmap: { numbers: [9, 222] },
    mprotect: { numbers: [10, 226] },
    munmap: { numbers: [11, 215] },
    mremap: { numbers: [25, 216] },
    madvise: { numbers: [28, 233] },
    mincore: { numbers: [27, 232] },
    brk: { numbers: [12, 214] },

    rt_sigaction: { numbers: [13, 134] },
    rt_sigprocmask: { numbers: [14, 135] },
    rt_sigreturn: { numbers: [15, 139] },
    sigaltstack: { numbers: [131, 132] },
    tgkill: { numbers: [234, 131], when: [{ argument: 0, oneOf: [processId] }] },

    // Only threads of this process, and no processes or namespaces.
    clone: {
      numbers: [56, 220],
      when: [{ argument: 0, bits: { set: CLONE_VM_SIGHAND_THREAD, clear: CLONE_NAMESPACES } }],
    },
    set_robust_list: { numbers: [273, 99] },
    rseq: { numbers: [334, 293] },
    futex: { numbers: [202, 98] },
    membarrier: { numbers: [324, 283] },
    sched_yield: { numbers: [24, 124] },
    sched_getaffinity: { numbers: [204, 123] },
    getcpu: { numbers: [309, 168] },
    prctl: { numbers: [157, 167], when: [{ argument: 0, oneOf: [PR_SET_NAME] }] },
    exit: { numbers: [60, 93] },
    exit_group: { numbers: [231, 94] },

    epoll_wait: { numbers: [232, null] },
    epoll_pwait: { numbers: [281, 22] },
    epoll_pwait2: { numbers: [441, 441] },
    epoll_ctl: { numbers: [233, 21] },
    eventfd2: { numbers: [290, 19] },
    timerfd_create: { numbers: [283, 85] },
    timerfd_settime: { numbers: [286, 86] },
    restart_syscall: { numbers: [219, 128] },
    nanosleep: { numbers: [35, 101] },
    clock_nanosleep: { numbers: [230, 115] },
    clock_gettime: { numbers: [228, 113] },
    clock_getres: { numbers: [229, 114] },
    gettimeofday: { numbers: [96, 169] },

    getpid: { numbers: [39, 172] },
    gettid: { numbers: [186, 178] },
    getrandom: { numbers: [318, 278] },
    getrusage: { numbers: [98, 165] },
    sysinfo: { numbers: [99, 179] },
    uname: { numbers: [63, 160] },
  };
}

/**
 * The flags of clone3 are in memory, which a filter cannot read. With ENOSYS, the C library uses `clone`
 * instead.
 */
const CLONE3: Numbers = [435, 435];

// Instructions of linux/bpf_common.h and results of linux/seccomp.h.
const LOAD_WORD = 0x20;
const AND = 0x54;
const JUMP_IF_EQUAL = 0x15;
const JUMP_IF_AT_LEAST = 0x35;
const RETURN = 0x06;
const ALLOW = 0x7fff0000;
const KILL_PROCESS = 0x80000000;
const FAIL_WITH = 0x00050000;
const EPERM = 1;
const ENOSYS = 38;

/** Offsets of the number, the architecture and the arguments in `struct seccomp_data`. */
const NUMBER_OFFSET = 0;
const ARCHITECTURE_OFFSET = 4;
const lowOffset = (argument: number): number => 16 + 8 * argument;
const highOffset = (argument: number): number => lowOffset(argument) + 4;

/** The bit of calls of the x32 interface, which have different numbers. */
const X32_BIT = 0x40000000;

interface Instruction {
  readonly code: number;
  readonly ifTrue: number;
  readonly ifFalse: number;
  readonly value: number;
}

/** Returns an array of `struct sock_filter` for the architecture and the process. */
export function systemCallFilter(architecture: Architecture, processId: number): Uint8Array {
  const { auditArchitecture, column } = ARCHITECTURES[architecture];
  const program: Instruction[] = [
    load(ARCHITECTURE_OFFSET),
    jump(JUMP_IF_EQUAL, auditArchitecture, 1, 0),
    end(KILL_PROCESS),
    load(NUMBER_OFFSET),
  ];
  if (architecture === "x64")
    program.push(jump(JUMP_IF_AT_LEAST, X32_BIT, 0, 1), end(KILL_PROCESS));
  program.push(jump(JUMP_IF_EQUAL, CLONE3[column]!, 0, 1), end(FAIL_WITH | ENOSYS));
  for (const { numbers, when = [] } of Object.values(allowedCalls(processId))) {
    const number = numbers[column];
    if (number === null) continue;
    const body = [...when.flatMap(denyUnless), end(ALLOW)];
    program.push(jump(JUMP_IF_EQUAL, number, 0, body.length), ...body);
  }
  program.push(end(FAIL_WITH | EPERM));
  return assembled(program);
}

/**
 * Returns instructions that end the program with EPERM if the condition is false. If it is true, the
 * instruction after them runs.
 */
function denyUnless({ argument, oneOf, bits }: Condition): Instruction[] {
  const deny = end(FAIL_WITH | EPERM);
  const isSmall = [load(highOffset(argument)), jump(JUMP_IF_EQUAL, 0, 1, 0), deny];
  if (bits !== undefined) {
    const { set, clear } = bits;
    return [
      ...isSmall,
      load(lowOffset(argument)),
      { code: AND, ifTrue: 0, ifFalse: 0, value: (set | clear) >>> 0 },
      jump(JUMP_IF_EQUAL, set, 1, 0),
      deny,
    ];
  }
  const values = oneOf ?? [];
  const comparisons = values.map((value, index) =>
    jump(JUMP_IF_EQUAL, value, values.length - index, 0),
  );
  return [...isSmall, load(lowOffset(argument)), ...comparisons, deny];
}

function load(offset: number): Instruction {
  return { code: LOAD_WORD, ifTrue: 0, ifFalse: 0, value: offset };
}

/** Returns a jump. `ifTrue` and `ifFalse` count the instructions to skip. */
function jump(code: number, value: number, ifTrue: number, ifFalse: number): Instruction {
  return { code, ifTrue, ifFalse, value };
}

function end(value: number): Instruction {
  return { code: RETURN, ifTrue: 0, ifFalse: 0, value: value >>> 0 };
}

const INSTRUCTION_BYTES = 8;

function assembled(program: readonly Instruction[]): Uint8Array {
  const bytes = new Uint8Array(program.length * INSTRUCTION_BYTES);
  const view = new DataView(bytes.buffer);
  for (const [index, { code, ifTrue, ifFalse, value }] of program.entries()) {
    const at = index * INSTRUCTION_BYTES;
    view.setUint16(at, code, true);
    view.setUint8(at + 2, ifTrue);
    view.setUint8(at + 3, ifFalse);
    view.setUint32(at + 4, value, true);
  }
  return bytes;
}

export const FILTER_INSTRUCTION_BYTES = INSTRUCTION_BYTES;
