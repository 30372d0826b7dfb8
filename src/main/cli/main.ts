import { runCli } from "./run-cli.ts";

/** The first signal interrupts the waits of the command. The second one ends the process immediately. */
const interruption = new AbortController();
for (const [signal, number] of [
  ["SIGINT", 2],
  ["SIGTERM", 15],
] as const) {
  process.on(signal, () => {
    if (interruption.signal.aborted) process.exit(128 + number);
    interruption.abort();
  });
}

const result = await runCli(process.argv.slice(2), {
  environment: process.env,
  cwd: process.cwd(),
  nowMs: Date.now,
  log: (message) => void process.stderr.write(`${message}\n`),
  interrupted: interruption.signal,
});
process.stderr.write(result.errorText);
// Exits explicitly, because a connection that cannot be closed would keep the process alive.
process.stdout.write(result.output, () => process.exit(result.exitCode));
