import type { Database } from "../../db/client.ts";
import { noteDraining, noteVersion } from "../../db/queries/instances.ts";
import { version } from "../../package.json";
import { composeApp } from "./compose/app.ts";
import type { ComposeOptions } from "./compose/base.ts";
import { composeLifecycle, type Parts, type Shutdown } from "./compose/lifecycle.ts";
import { composeServices, type Services } from "./compose/services.ts";

export interface Gateway extends Shutdown {
  readonly app: ReturnType<typeof composeApp>;
  /** Builds the dashboard's files in advance, so that the first request for them does not wait. */
  buildPages(): Promise<void>;
}

/** Chooses, constructs and starts all implementations. They are constructed in compose/. */
export async function composeGateway(options: ComposeOptions): Promise<Gateway> {
  const services = await composeServices(options);
  const app = composeApp(services);
  const { inFlight, responses, bundle } = services;
  const { following } = responses;
  const { start, ...shutdown } = composeLifecycle(partsOf(services), { inFlight, following });
  await start();
  return {
    app,
    buildPages: () => bundle.prepare(),
    ...shutdown,
    announceStop() {
      shutdown.announceStop();
      void report(services, (sql) => noteDraining(sql, services.instance));
    },
  };
}

/** Writes what operators see of this instance. A failure does not stop the gateway. */
async function report(
  { background, onError }: Services,
  write: (sql: Database) => Promise<void>,
): Promise<void> {
  await write(background).catch(onError);
}

/** Milliseconds for the last failed requests to be written. */
const WRITE_FAILED_MS = 2_000;

/** Lists the parts in the order in which they start. They stop in the reverse order. */
export function partsOf(services: Services): Parts {
  const { collected, connections, coordination, instance, ledger, node, workThread } = services;
  return {
    // Sending the last traces and metrics takes until all other parts have stopped.
    lastExports: { stop: () => collected.whenExported() },
    connections: { stop: () => connections.close() },
    coordination: { stop: () => coordination.close() },
    // Every service has subscribed to changes; the node reports them when it has started.
    node: { start: () => node.start(), stop: () => node.leave() },
    presence: { start: () => report(services, (sql) => noteVersion(sql, instance, version)) },
    webhooks: services.webhooks,
    alerts: services.alerts,
    ledger: { stop: () => ledger.close() },
    exports: { stop: () => collected.export() },
    failedRequests: { stop: () => services.failedRequests.close(WRITE_FAILED_MS) },
    lastUse: { stop: () => services.lastUse.write() },
    requests: { abort: () => services.inFlight.abortAll() },
    bodies: { abort: () => services.bodies.abortAll() },
    files: services.files,
    idempotency: { stop: () => services.idempotency.close() },
    // Jobs stop first, because a job would count the loss of the thread as a failed attempt.
    jobs: [
      services.tuning,
      services.vectorStores,
      services.batches,
      { abort: () => workThread.close(), stop: () => workThread.close() },
    ],
    runningCalls: services.runningCalls,
    billing: services.billing,
    hosted: services.hosted,
    pendingRefunds: { start: () => services.notes.watch(), stop: () => services.notes.close() },
    orders: { stop: () => services.orders.close() },
    usage: services.usage,
    balances: services.balances,
    lag: services.lag,
    healthChecks: services.healthChecks,
    healthRecorder: services.healthRecorder,
    modelLists: services.modelLists,
    storedConfiguration: services.storedConfiguration,
    ...services.world,
  };
}
