import "./support/preload.ts";
import { join } from "node:path";
import { NO_REDIS_WARNING } from "./support/redis.ts";
import { startTestServices } from "./support/services.ts";

/*
 * Runs the whole suite, or the files that the arguments name: everything is handed to `bun test`.
 * TEST_DATABASE_URL and TEST_REDIS_URL name servers to use in place of ones started for the run.
 */

/** Tests with real processes, killed and restarted many times, take long. */
const TEST_TIMEOUT_MS = 60_000;

async function main(): Promise<number> {
  let interrupted: NodeJS.Signals | undefined;
  let tests: Bun.Subprocess | undefined;
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      interrupted = signal;
      tests?.kill(signal);
    });
  }
  const running = await startTestServices();
  try {
    if (running.services.redisUrl === undefined) {
      console.error(`\n!!! ${NO_REDIS_WARNING}\n`);
      if (process.env.CI === "true") return 1;
    }
    if (interrupted === undefined) {
      tests = Bun.spawn(
        [process.execPath, "test", `--timeout=${TEST_TIMEOUT_MS}`, ...process.argv.slice(2)],
        {
          cwd: join(import.meta.dir, ".."),
          // Bun's default is the environment at our own start, without what changed since.
          env: process.env,
          stdio: ["inherit", "inherit", "inherit"],
        },
      );
      await tests.exited;
    }
    return interrupted === undefined ? (tests?.exitCode ?? 1) : 130;
  } finally {
    await running.stop();
  }
}

process.exit(
  await main().catch((error: Error) => {
    console.error(error.message);
    return 1;
  }),
);
