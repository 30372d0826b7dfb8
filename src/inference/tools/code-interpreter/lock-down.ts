/**
 * Removes from the current process everything that computing does not need: files, sockets, other processes,
 * privileges. Nothing can undo it, not even native code.
 */

import { dlopen, type Pointer, ptr, read } from "bun:ffi";
import { openSync, readFileSync } from "node:fs";
import { type Architecture, FILTER_INSTRUCTION_BYTES, systemCallFilter } from "./system-calls.ts";

export interface LockDownBounds {
  /** Bytes of addresses that the process can still map, in addition to those it has. */
  readonly maxFurtherMemoryBytes: number;
  /** CPU seconds of all threads since the process began. */
  readonly maxCpuSeconds: number;
}

/** System call numbers that differ. Newer calls have the same number on both architectures. */
const NUMBERS = {
  x64: { prctl: 157, prlimit64: 302, seccomp: 317 },
  arm64: { prctl: 167, prlimit64: 261, seccomp: 277 },
} as const;
const LANDLOCK_CREATE_RULESET = 444;
const LANDLOCK_RESTRICT_SELF = 446;

const PR_SET_PDEATHSIG = 1;
const PR_SET_DUMPABLE = 4;
const PR_SET_NO_NEW_PRIVS = 38;
const SIGKILL = 9;
const SECCOMP_SET_MODE_FILTER = 1;
const SECCOMP_FILTER_FLAG_TSYNC = 1;
const LANDLOCK_CREATE_RULESET_VERSION = 1;
const LANDLOCK_RESTRICT_SELF_TSYNC = 8;
/** The version of Landlock that can restrict all threads. */
const LANDLOCK_TSYNC_SINCE = 8;

const LIMITS = { cpu: 0, fileSize: 1, core: 4, threads: 6, files: 7, locked: 8, addresses: 9 };
const MAX_FILES = 64;
const MAX_THREADS = 64;
/**
 * Higher than the accounts of any system. Together with the process id it is an account that no other process
 * has.
 */
const FIRST_SEPARATE_ACCOUNT = 0x40000000;
const ACCOUNT_NOBODY = 65_534;

/**
 * Locks the process down. Throws if the platform does not support a part of it. The process must then not run
 * untrusted code.
 */
export function lockDown(bounds: LockDownBounds): void {
  const system = new System();
  const hasSeparateAccount = system.leaveRoot();
  assertPowerless();
  system.control(PR_SET_NO_NEW_PRIVS, 1);
  // After the change of account, which resets both.
  system.control(PR_SET_DUMPABLE, 0);
  system.control(PR_SET_PDEATHSIG, SIGKILL);
  // The limit counts the threads of an account, so the process needs a separate account.
  if (hasSeparateAccount) system.limit(LIMITS.threads, MAX_THREADS);
  system.limit(LIMITS.core, 0);
  system.limit(LIMITS.fileSize, 0);
  system.limit(LIMITS.locked, 0);
  system.limit(LIMITS.files, MAX_FILES);
  system.limit(LIMITS.cpu, bounds.maxCpuSeconds);
  system.limit(LIMITS.addresses, addressBytes() + bounds.maxFurtherMemoryBytes);
  system.denyPaths();
  system.filterCalls();
  assertFiltered();
}

class System {
  readonly #architecture: Architecture;
  readonly #library = openLibrary();

  constructor() {
    const { platform, arch } = process;
    if (platform !== "linux" || (arch !== "x64" && arch !== "arm64")) {
      throw new Error(`the lock-down does not support ${platform} on ${arch}`);
    }
    this.#architecture = arch;
  }

  /** Returns true if the process now runs as a separate account. Without root it keeps its account. */
  leaveRoot(): boolean {
    if (process.getuid?.() !== 0 && process.geteuid?.() !== 0) return false;
    const { setgroups, setresgid, setresuid } = this.#library.symbols;
    const become = (id: number): boolean =>
      setresgid(id, id, id) === 0 && setresuid(id, id, id) === 0;
    // Some containers do not allow account changes. assertPowerless checks the remaining privileges.
    setgroups(0n, null);
    if (become(FIRST_SEPARATE_ACCOUNT + process.pid)) return true;
    become(ACCOUNT_NOBODY);
    return false;
  }

  control(option: number, value: number): void {
    this.#call("prctl", NUMBERS[this.#architecture].prctl, option, value);
  }

  limit(resource: number, value: number): void {
    const both = BigUint64Array.of(BigInt(value), BigInt(value));
    this.#call("prlimit64", NUMBERS[this.#architecture].prlimit64, 0, resource, ptr(both));
  }

  /**
   * Denies all paths, ports and signals with Landlock, if the kernel supports it. It is a second barrier
   * besides the filter. It covers this thread and those that it starts, and all threads if the version
   * supports that.
   */
  denyPaths(): void {
    const version = this.#try(LANDLOCK_CREATE_RULESET, 0, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1) return;
    const attributes = landlockAttributes(version);
    const size = attributes.byteLength;
    const ruleset = this.#call("landlock", LANDLOCK_CREATE_RULESET, ptr(attributes), size, 0);
    const flags = version >= LANDLOCK_TSYNC_SINCE ? LANDLOCK_RESTRICT_SELF_TSYNC : 0;
    this.#call("landlock", LANDLOCK_RESTRICT_SELF, ruleset, flags);
  }

  filterCalls(): void {
    const filter = systemCallFilter(this.#architecture, process.pid);
    // struct sock_fprog: the number of instructions, and their address.
    const program = new DataView(new ArrayBuffer(16));
    program.setUint16(0, filter.byteLength / FILTER_INSTRUCTION_BYTES, true);
    program.setBigUint64(8, BigInt(ptr(filter)), true);
    const { seccomp } = NUMBERS[this.#architecture];
    const flags = SECCOMP_FILTER_FLAG_TSYNC;
    const thread = this.#call("seccomp", seccomp, SECCOMP_SET_MODE_FILTER, flags, ptr(program));
    if (thread !== 0) throw new Error(`thread ${thread} could not be filtered`);
  }

  #call(name: string, number: number, ...parameters: readonly number[]): number {
    const result = this.#try(number, ...parameters);
    if (result >= 0) return result;
    const errno = read.i32(this.#library.symbols.__errno_location() as Pointer);
    throw new Error(`${name} failed with errno ${errno}`);
  }

  #try(number: number, a = 0, b = 0, c = 0, d = 0, e = 0): number {
    return Number(this.#library.symbols.syscall(number, a, b, c, d, e));
  }
}

/** Opens the C library that Bun is linked to: glibc or musl. */
function openLibrary() {
  const word = "i64";
  const symbols = {
    syscall: { args: [word, word, word, word, word, word], returns: word },
    __errno_location: { args: [], returns: "ptr" },
    setgroups: { args: ["u64", "ptr"], returns: "i32" },
    setresgid: { args: ["u32", "u32", "u32"], returns: "i32" },
    setresuid: { args: ["u32", "u32", "u32"], returns: "i32" },
  } as const;
  const musl = `libc.musl-${process.arch === "x64" ? "x86_64" : "aarch64"}.so.1`;
  try {
    return dlopen("libc.so.6", symbols);
  } catch {
    return dlopen(musl, symbols);
  }
}

/** Returns struct landlock_ruleset_attr with everything that the version can deny. */
function landlockAttributes(version: number): BigUint64Array {
  let fileRights = 0x1fffn;
  if (version >= 2) fileRights |= 1n << 13n;
  if (version >= 3) fileRights |= 1n << 14n;
  if (version >= 5) fileRights |= 1n << 15n;
  const portRights = 0b11n;
  const scopes = 0b11n;
  if (version >= 6) return BigUint64Array.of(fileRights, portRights, scopes);
  return version >= 4 ? BigUint64Array.of(fileRights, portRights) : BigUint64Array.of(fileRights);
}

function assertPowerless(): void {
  const powers = /^CapEff:\s*([0-9a-f]+)$/m.exec(processStatus())?.[1];
  if (powers === undefined || BigInt(`0x${powers}`) !== 0n) {
    throw new Error("the process cannot give up the capabilities of its account");
  }
}

function assertFiltered(): void {
  try {
    openSync("/proc/self/status", "r");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EPERM") return;
  }
  throw new Error("the system call filter is not effective");
}

function addressBytes(): number {
  return Number(/^VmSize:\s*(\d+) kB$/m.exec(processStatus())![1]) * 1_024;
}

function processStatus(): string {
  return readFileSync("/proc/self/status", "utf8");
}
