/*
 * Which test files run when. `bun run test` leaves out what starts, kills or restarts processes and
 * databases, what tries many schedules, and what installs clients of other languages; `test:all` runs every
 * file; `test:thorough` runs those left out once more at full length.
 */

/** Folders and files that `bun run test` leaves out: long, and about more than one process. */
export const LONG = [
  "test/backup/",
  "test/clients/coding-agents.test.ts",
  "test/clients/compiled-clients.test.ts",
  "test/clients/python-clients.test.ts",
  "test/cluster/redis-loss-schedules.test.ts",
  "test/cluster/redis-loss.test.ts",
  "test/crash/",
  "test/cli/embedded-database.test.ts",
  "test/embedded/",
  "test/ledger/driver-failed-statements.test.ts",
  "test/ledger/ledger-outage.test.ts",
  "test/ledger/server-crash.test.ts",
  "test/master-key/",
  "test/clustered/",
  "test/overload/large-bodies.test.ts",
  "test/ownership/heartbeat-thread.test.ts",
  "test/release/executable.test.ts",
  "test/release/npm-package.test.ts",
  "test/simulation/",
  "test/start/",
  "test/upgrade/",
  "test/webhooks/chaos.test.ts",
  "test/webhooks/tenants.test.ts",
] as const;

/** Started first in their part of the run, because they take longest there. */
export const LONGEST = [
  "test/cli/embedded-database.test.ts",
  "test/clients/anthropic-sdk.test.ts",
  "test/clients/python-clients.test.ts",
  "test/cluster/redis-loss.test.ts",
  "test/clustered/budget-races.test.ts",
  "test/crash/clustered.test.ts",
  "test/crash/database-loss.test.ts",
  "test/crash/owed-refunds.test.ts",
  "test/crash/stop.test.ts",
  "test/crash/swallowed-packets.test.ts",
  "test/dashboard/settings.browser.test.ts",
  "test/endpoints/chat-long-same.test.ts",
  "test/endpoints/chat-provider-garbage.test.ts",
  "test/endpoints/responses-python.test.ts",
  "test/fine-tuning/provider.test.ts",
  "test/overload/long-bodies.test.ts",
  "test/release/npm-package.test.ts",
  "test/start/first-start.test.ts",
  "test/start/generated-master-key.test.ts",
  "test/start/refused-start.test.ts",
  "test/start/workers.test.ts",
  "test/tools/code-interpreter/bounds.test.ts",
  "test/tools/code-interpreter/code-interpreter.test.ts",
  "test/vector-stores/embedding.test.ts",
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
