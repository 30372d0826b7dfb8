import type { RouteDefinition } from "../../http/route.ts";
import { AnswerCache } from "../../inference/call/cache/answer-cache.ts";
import { CachedCalls } from "../../inference/call/cache/cached-calls.ts";
import { InFlightDeduplication } from "../../inference/call/cache/in-flight-deduplication.ts";
import type { Moderation } from "../../inference/call/guard/call-guard.ts";
import { ModelModeration } from "../../inference/call/guard/model-moderation.ts";
import { CallSlots } from "../../inference/call/routing/call-slots.ts";
import type { HealthChecks } from "../../inference/call/routing/health-checks.ts";
import type { PaidCallDependencies } from "../../inference/call/run-call.ts";
import { StreamTicker } from "../../inference/call/stream/ticker.ts";
import type { ImageServices } from "../../inference/endpoints/images/endpoint.ts";
import { LongBodies } from "../../inference/endpoints/long-bodies.ts";
import { modelEndpoints } from "../../inference/endpoints/table.ts";
import type { ResponseServices } from "../../inference/responses/background-routes.ts";
import type { HostedServices } from "../../inference/tools/hosted-services.ts";
import { type Clock, steady } from "../../lib/clock.ts";
import { DeadlineQueue } from "../../lib/deadlines.ts";
import { GatewayError } from "../../lib/errors.ts";
import { FairWorkThread } from "../../lib/work-thread.ts";
import type { Coordination } from "../../platform/cluster/interface.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import { createEgressDownload } from "../../platform/egress/download.ts";
import { createEgressGuard, EgressRefused } from "../../platform/egress/guard.ts";
import { type Provider, ProviderFailure } from "../../providers/interface.ts";
import type { Base } from "./base.ts";
import type { ClusterNode } from "./cluster-node.ts";
import type { FileParts } from "./files.ts";
import type { ModelParts } from "./models.ts";
import type { MoneyParts } from "./money.ts";
import type { VectorStoreParts } from "./vector-stores.ts";

/** Milliseconds for one task. The largest body takes about a second, so a longer task hangs. */
const WORK_DEADLINE_MS = 15_000;
const MAX_WAIT_FOR_WORK_MS = 15_000;
const MAX_WAITING = 512;
const MAX_WAITING_OF_ONE = 128;

/** Creates the thread for work that would block the event loop. See `long-work-thread.ts`. */
export function createWorkThread(onLost: (error: unknown) => void): FairWorkThread {
  return new FairWorkThread({
    script: new URL("./long-work-thread.ts", import.meta.url),
    deadlineMs: WORK_DEADLINE_MS,
    maxWaitMs: MAX_WAIT_FOR_WORK_MS,
    maxWaiting: MAX_WAITING,
    maxWaitingOfOne: MAX_WAITING_OF_ONE,
    onLost,
  });
}

/** Composes the parts that all paid calls share. */
export function composeCalls(
  parts: Base &
    ModelParts &
    MoneyParts &
    Pick<PaidCallDependencies, "tunedModels" | "idempotency" | "events" | "isAborting"> & {
      readonly node: ClusterNode;
      readonly coordination: Coordination;
      readonly healthChecks: HealthChecks;
      readonly workThread: FairWorkThread;
    },
) {
  const { config, clock, world, telemetry, workThread, providers, byokKeys } = parts;
  const { upstreamTimeouts, keepaliveMs } = config;
  const steadyClock = steady(clock);
  const ticker = new StreamTicker(steadyClock);
  parts.beforeFenced(() => ticker.recordUndelivered());
  const deadlines = new DeadlineQueue(steadyClock, upstreamTimeouts.totalMs);
  const slots = new CallSlots({
    slots: parts.coordination.slots,
    clock: steadyClock,
    maxWaitMs: upstreamTimeouts.fullMs,
  });
  telemetry.gauge(
    "gateway_calls_waiting",
    "Calls that wait because every endpoint is at its concurrency limit.",
    () => slots.waiting,
  );
  telemetry.gauge("gateway_streams_running", "Streams that are open.", () => ticker.size);
  const { money, tunedModels, definitions, admission, idempotency, events, notes } = parts;
  const calls: PaidCallDependencies = {
    ...{ money, tunedModels, definitions, admission, idempotency, events, notes },
    ...{ providers, byokKeys, ticker, deadlines, keepaliveMs },
    isAborting: parts.isAborting,
    membership: parts.node.membership,
    cache: composeCache({ ...parts, steadyClock, deadlines }),
    calls: {
      ...{ endpoints: world.endpoints, slots, clock, steadyClock, random: Math.random },
      onKeyRejected: (byokKeyId) => byokKeys.markInvalid(byokKeyId),
      isDown: (providerId) => parts.healthChecks.isDown(providerId),
    },
    guarding: { thread: workThread, moderation: moderationOf(config, providers) },
    openings: new DeadlineQueue(steadyClock, keepaliveMs),
    firstTokenTimeoutMs: upstreamTimeouts.firstTokenMs,
    idleTimeoutMs: upstreamTimeouts.idleMs,
    totalTimeoutMs: upstreamTimeouts.totalMs,
    onError: (error, requestId) =>
      telemetry.log.warn({ err: error, request_id: requestId }, "stream failed"),
  };
  return {
    calls,
    abort(): void {
      ticker.abortAll();
      deadlines.expireAll();
    },
  };
}

/** Composes the routes of the billed endpoints. */
export function composeEndpoints(
  parts: Base &
    Pick<ModelParts, "definitions"> & {
      readonly calls: PaidCallDependencies;
      readonly workThread: FairWorkThread;
      readonly files: FileParts;
      readonly vectorStores: VectorStoreParts;
      readonly responses: ResponseServices;
      readonly hosted: HostedServices;
    },
): RouteDefinition[] {
  const { config, clock, workThread, responses, hosted } = parts;
  return modelEndpoints(parts.calls, {
    ...{ workThread, responses, hosted },
    longBodies: new LongBodies(workThread, parts.definitions),
    allowsEcho: config.debugEcho,
    documents: parts.vectorStores.documents,
    images: {
      ...{ clock, publicUrl: config.publicUrl },
      media: parts.files.media,
      fetchImage: imageFetch(config),
    },
  });
}

/** Composes moderation by the operator's model. Returns undefined if none is configured. */
function moderationOf(
  { moderationModel }: GatewayConfig,
  providers: ReadonlyMap<string, Provider>,
): Moderation | undefined {
  if (moderationModel === undefined) return undefined;
  const slash = moderationModel.indexOf("/");
  const provider = () => providers.get(moderationModel.slice(0, slash));
  if (provider()?.moderate === undefined) return undefined;
  const moderate: NonNullable<Provider["moderate"]> = (call) => {
    const send = provider()?.moderate;
    if (send !== undefined) return send(call);
    throw new GatewayError("moderation_unavailable", "The moderation model is not available.");
  };
  return new ModelModeration(moderate, moderationModel.slice(slash + 1));
}

/** Composes the response cache, and the single-flight of equal requests. */
function composeCache(
  options: Base &
    MoneyParts &
    Pick<PaidCallDependencies, "idempotency" | "isAborting" | "deadlines"> & {
      readonly steadyClock: Clock;
    },
): CachedCalls {
  const { config, telemetry } = options;
  const onError = (error: unknown): void =>
    telemetry.log.warn({ err: error }, "the response cache failed");
  const answers = new AnswerCache({ ...options, bounds: config.responseCache, onError });
  const cache = new CachedCalls({
    ...options,
    answers,
    flights: new InFlightDeduplication({ ...options, onError }),
  });
  telemetry.counter(
    "gateway_cache_hits_total",
    "Requests that the response cache answered.",
    () => cache.hits,
  );
  telemetry.counter(
    "gateway_cache_misses_total",
    "Requests that the response cache had no answer for.",
    () => cache.misses,
  );
  return cache;
}

/** Milliseconds to fetch one image. */
const FETCH_TIMEOUT_MS = 60_000;

/** Fetches images that providers store for a time. Their URLs are untrusted, like URLs of users. */
function imageFetch(config: GatewayConfig): ImageServices["fetchImage"] {
  const guard = createEgressGuard(config);
  const download = createEgressDownload({ guard });
  const fetchOnce: ImageServices["fetchImage"] = async (url, { maxBytes, signal }) => {
    try {
      return await download(url, { maxBytes, signal, timeoutMs: FETCH_TIMEOUT_MS });
    } catch (cause) {
      if (signal.aborted) throw new ProviderFailure("aborted", "the call was aborted", { cause });
      const why = cause instanceof Error ? cause.message : "it failed";
      const message = `an image could not be fetched from the provider's storage: ${why}`;
      // Not retryable, because each call of the provider generates and bills the image again.
      const isLasting = cause instanceof EgressRefused;
      throw new ProviderFailure("unavailable", message, { cause, isLasting });
    }
  };
  return (url, options) =>
    fetchOnce(url, options).catch((error: ProviderFailure) => {
      if (error.kind === "aborted" || error.isLasting) throw error;
      return fetchOnce(url, options);
    });
}
