/*
 * Which test files run when. `bun run test` leaves out LONG files and the slow files of
 * durations.json; `test:all` runs every file; `test:thorough` runs the LONG files at full length.
 */

/**
 * Folders and files that start, kill or restart processes and databases, try many schedules, install clients of
 * other languages, or check the types of a copy of the project. Each runs in a process of its own.
 */
export const LONG = [
  "test/backup/",
  "test/clients/coding-agents.test.ts",
  "test/clients/compiled-clients.test.ts",
  "test/clients/python-clients.test.ts",
  "test/cluster/redis-loss-schedules.test.ts",
  "test/cluster/redis-loss.test.ts",
  "test/crash/",
  "test/cli/embedded-database.test.ts",
  "test/docs/examples.test.ts",
  "test/docs/site.test.ts",
  "test/embedded/",
  "test/ledger/driver-failed-statements.test.ts",
  "test/ledger/ledger-outage.test.ts",
  "test/ledger/server-crash.test.ts",
  "test/master-key/",
  "test/clustered/",
  "test/overload/large-bodies.test.ts",
  "test/ownership/heartbeat-thread.test.ts",
  "test/recipes/",
  "test/release/executable.test.ts",
  "test/release/npm-package.test.ts",
  "test/simulation/",
  "test/start/",
  "test/upgrade/",
  "test/webhooks/chaos.test.ts",
  "test/webhooks/tenants.test.ts",
] as const;

/**
 * Files that bound how fast other requests are served, or how much is admitted in a time. They run after
 * the others, one by one, because other files' load would break their bounds.
 */
export const MEASURING = [
  "test/files/files-backpressure.test.ts",
  "test/ledger/shared-floods.test.ts",
  "test/lib/young-garbage.test.ts",
  "test/money/money-budget-race.test.ts",
  "test/overload/bounded-database.test.ts",
  "test/overload/large-bodies.test.ts",
  "test/overload/request-bodies.test.ts",
  "test/overload/upload-memory.test.ts",
  "test/ownership/unowned-work.test.ts",
  "test/providers/sandbox-schema-hostile.test.ts",
  "test/telemetry/log-writer.test.ts",
] as const;

/** Settings that give the long files their full length; see each file for what it means. */
export const THOROUGH_SETTINGS = {
  GATEWAY_SIM_SCHEDULES: "100000",
  GATEWAY_TEST_ARRIVAL_SECONDS: "30",
  GATEWAY_TEST_BATCH_KILLS: "20",
  GATEWAY_TEST_BATCH_LINES: "1000",
  GATEWAY_TEST_CHAOS_SECONDS: "600",
  GATEWAY_TEST_CRASH_ROUNDS: "60",
  GATEWAY_TEST_DELIVERY_EVENTS: "10000",
  GATEWAY_TEST_FILE_MEGABYTES: "512",
  GATEWAY_TEST_LOOP_DISASTERS: "100",
  GATEWAY_TEST_PAIR_DISASTERS: "100",
  GATEWAY_TEST_QUEUED_DELIVERIES: "300000",
  GATEWAY_TEST_RATE_SCHEDULES: "2000",
  GATEWAY_TEST_RATE_WINDOW_SECONDS: "60",
  GATEWAY_TEST_ROLLING_RATE: "200",
  GATEWAY_TEST_SEVERAL_ROUNDS: "100",
  GATEWAY_TEST_THOROUGH: "1",
  GATEWAY_TEST_TUNING_KILLS: "40",
} as const;

export function belongsTo(file: string, places: readonly string[]): boolean {
  return places.some((place) => file === place || (place.endsWith("/") && file.startsWith(place)));
}
