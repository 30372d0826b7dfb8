/*
 * Tries what a program could want of the kernel, as native code in the process would, and prints the outcome of each
 * try as JSON. With "locked" as its argument it locks itself down first.
 */

import { dlopen, type Pointer, ptr, read } from "bun:ffi";
import dns from "node:dns/promises";
import { readdirSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { createConnection } from "node:net";
import { lockDown } from "../../../src/inference/tools/code-interpreter/lock-down.ts";
import type { Attempt } from "./attempts.ts";

const [, , mode, attempts, wantedCalls, port, folder] = process.argv;
const i64 = "i64";
const libc = dlopen("libc.so.6", {
  syscall: { args: [i64, i64, i64, i64, i64, i64, i64], returns: i64 },
  __errno_location: { args: [], returns: "ptr" },
});
const path = Buffer.from("/etc/hostname\0");
const structure = new Uint8Array(256);
const words: Readonly<Record<string, number>> = {
  path: ptr(path),
  structure: ptr(structure),
  self: process.pid,
  parent: process.ppid,
};
// Bun loads the parts of such calls at the first use, which needs files.
await Promise.allSettled([dns.lookup("localhost"), fetch(`http://127.0.0.1:${port}/before`)]);

const BOUNDS = { maxFurtherMemoryBytes: 2 ** 32, maxCpuSeconds: 60 };
if (mode !== "open") lockDown(BOUNDS);
// As where a kernel, or what contains this process, refuses parts of it.
if (mode === "twice") lockDown(BOUNDS);

const outcomes: Record<string, string> = {};
for (const { name, numbers, args } of JSON.parse(attempts!) as Attempt[]) {
  const number = numbers[process.arch === "x64" ? 0 : 1];
  if (number === null) continue;
  const given = args.map((arg) => (typeof arg === "number" ? arg : words[arg]!));
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = given;
  const result = Number(libc.symbols.syscall(number, a, b, c, d, e, f));
  const errno = read.i32(libc.symbols.__errno_location() as Pointer);
  outcomes[name] = result < 0 ? `errno ${errno}` : "done";
}

const calls: Readonly<Record<string, () => unknown>> = {
  "fs.readFileSync": () => readFileSync("/etc/hostname"),
  "fs.readFileSync of /proc": () => readFileSync("/proc/self/environ"),
  "fs.readdirSync": () => readdirSync("/"),
  "fs.writeFileSync": () => writeFileSync(`${folder}/written`, "x"),
  "Bun.file": () => Bun.file("/etc/hostname").text(),
  "Bun.spawn": () => Bun.spawn(["/bin/true"]).exited,
  "Bun.listen": () => Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } }),
  "dns.lookup": () => dns.lookup("example.com"),
  fetch: () => fetch(`http://127.0.0.1:${port}/after`),
  "net.connect": () =>
    new Promise((resolve, reject) => {
      const socket = createConnection(Number(port), "127.0.0.1");
      socket.on("connect", resolve).on("error", reject);
    }),
  "a file in a Worker": () =>
    new Promise((resolve, reject) => {
      const code = `postMessage(require("node:fs").readFileSync("/etc/hostname").length)`;
      const worker = new Worker(URL.createObjectURL(new Blob([code])));
      worker.onmessage = resolve;
      worker.onerror = reject;
    }),
};
for (const name of JSON.parse(wantedCalls!) as string[]) {
  const call = calls[name]!;
  const tooLong = new Promise<never>((_, reject) => setTimeout(reject, 2_000));
  outcomes[name] = await Promise.race([Promise.resolve().then(call), tooLong]).then(
    () => "done",
    () => "failed",
  );
}
writeSync(1, JSON.stringify(outcomes));
process.exit(0);
