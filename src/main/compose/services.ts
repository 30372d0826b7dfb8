import { StoredConfiguration } from "../../accounts/configuration/stored-configuration.ts";
import { LastUse } from "../../accounts/keys/api-keys.ts";
import { PageBundle } from "../../dashboard/pages.ts";
import { BodyBudget } from "../../http/body-budget.ts";
import { Idempotency } from "../../inference/call/idempotency/idempotency.ts";
import { TunedModels } from "../../inference/call/routing/tuned-models.ts";
import { InFlight } from "../../platform/cluster/in-flight.ts";
import { EventLoopLag } from "../../platform/telemetry/process-metrics.ts";
import { composeAlerts, composeMail } from "./alerts.ts";
import { composeCollected, composeFailedRequests } from "./app.ts";
import { type ComposeOptions, composeBase } from "./base.ts";
import { composeBatches } from "./batches.ts";
import { composeNode, enterCluster, openCoordination } from "./cluster-node.ts";
import { composeCalls, composeEndpoints, createWorkThread } from "./endpoints.ts";
import { composeFiles } from "./files.ts";
import { composeFineTuning } from "./fine-tuning.ts";
import { composeBalances, composeUsage, registerGauges } from "./gauges.ts";
import { composeHealth, composeHealthChecks, composeModels } from "./models.ts";
import { composeMoney } from "./money.ts";
import { composePayments } from "./payments.ts";
import { composeResponses } from "./responses.ts";
import { composeTools } from "./tools.ts";
import { composeVectorStores } from "./vector-stores.ts";
import { createWebhooks } from "./webhooks.ts";

/** Joins the gateways of the database, and constructs all services. None of them works by itself yet. */
export async function composeServices(options: ComposeOptions) {
  const base = composeBase(options);
  const { background, config, clock, onError, read } = base;
  const node = composeNode(base);
  const coordination = await openCoordination(base, node.membership);
  const webhooks = createWebhooks({ ...base, ...coordination, node });
  const mail = composeMail(base);
  const alerts = composeAlerts(base, node, { mail, slots: webhooks.slots });
  await enterCluster(base, node, coordination);
  // The ledger's connection must be open before requests are admitted, because it charges them.
  await base.connections.whenOpen();

  const workThread = createWorkThread(onError);
  const modelParts = await composeModels(base, workThread);
  const healthChecks = composeHealthChecks(base, node, modelParts);
  const tunedModels = new TunedModels({ read, models: modelParts.models });
  // Their prices are those of their base models.
  modelParts.live.onChanged(() => tunedModels.forgetAll());
  const inFlight = new InFlight();
  const accounts = composeMoney(base, coordination.rates, inFlight);
  const lag = new EventLoopLag();
  const isAborting = () => inFlight.isAborting;
  const maxWaitMs = config.upstreamTimeouts.totalMs;
  const shared = {
    ...{ ...base, ...modelParts, ...accounts, node, coordination },
    ...{ workThread, healthChecks, inFlight, lag, isAborting },
    billing: composePayments(base, accounts),
    events: webhooks.completionEvents,
    files: composeFiles(base),
    tunedModels,
    ...composeHealth(base, modelParts, accounts.world),
    idempotency: new Idempotency({ ...base, maxWaitMs, isAborting }),
    responses: composeResponses(base),
  };
  const tuning = composeFineTuning(shared);
  const { calls, ...runningCalls } = composeCalls(shared);
  const vectorStores = composeVectorStores({ ...shared, calls });
  const hosted = composeTools({ ...shared, vectorStores });
  const routes = composeEndpoints({ ...shared, calls, vectorStores, hosted });
  const { failedRequests, note } = composeFailedRequests(base, routes, webhooks);
  const batches = composeBatches({ ...shared, routes, note });
  registerGauges(shared);
  return {
    ...{ ...shared, webhooks, mail, alerts, tuning, vectorStores, hosted, batches },
    ...{ failedRequests, note, runningCalls },
    /** The routes of the billed endpoints. */
    routes,
    storedConfiguration: new StoredConfiguration({
      ...base,
      live: modelParts.live,
      isReporter: () => node.membership.peers().rank === 0,
    }),
    balances: composeBalances(base, node),
    usage: composeUsage(base, node),
    lastUse: new LastUse(background, onError),
    bodies: new BodyBudget(clock),
    /** Files of the dashboard. */
    bundle: new PageBundle(),
    collected: await composeCollected(base),
  };
}

export type Services = Awaited<ReturnType<typeof composeServices>>;
