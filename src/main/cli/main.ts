import { runCli } from "./run-cli.ts";

/** A first signal asks the command to give up what it waits for; a second one does not wait for that. */
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
process.stderr.write(result.complaint);
// The end is explicit, because a connection that cannot be closed must not keep the process.
process.stdout.write(result.output, () => process.exit(result.exitCode));
