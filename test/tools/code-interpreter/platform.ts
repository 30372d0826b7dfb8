import { existsSync } from "node:fs";

/** Whether the kernel can filter system calls. Where it can, a lock-down that fails is a fault. */
export const hasSeccomp =
  process.platform === "linux" &&
  ["x64", "arm64"].includes(process.arch) &&
  existsSync("/proc/sys/kernel/seccomp/actions_avail");

export function sayWhySkipped(): void {
  if (!hasSeccomp) console.warn("skipped: this system has no seccomp, so no Python is run on it");
}
