import { usdText } from "../../lib/money.ts";
import { type AdmittedCall, sentLimit } from "./call.ts";
import type { MeteredFigures } from "./call-charge.ts";
import type { AcceptedRequest } from "./endpoint.ts";
import type { Failover } from "./routing/failover.ts";
import type { Candidate, RoutePlan } from "./routing/plan-route.ts";

type Call = AdmittedCall<AcceptedRequest>;

/** The outcome of a failover, for the headers that describe the route. */
type FailoverResult = Pick<Failover, "attemptLog" | "unhealthy" | "saturated" | "untried">;

const DROPPED_PARAMETERS = "x-gateway-dropped-parameters";
const TRANSFORMS = "x-gateway-transforms";
const MAX_HEADER_CHARACTERS = 2_000;

/**
 * Returns the headers of a response: the rate limit, the lowered limit of output tokens and the dropped
 * parameters. If the candidate is known, also the provider and the route.
 */
export function answerHeaders(
  call: Call,
  candidate: Candidate | undefined,
  result: FailoverResult,
): Record<string, string> {
  const headers: Record<string, string> = {};
  const { hold, tokens, lifetime } = call;
  for (const name in lifetime.responseHeaders) headers[name] = lifetime.responseHeaders[name]!;
  if (hold.isLowered || tokens?.outputLimit !== undefined) {
    const sent = candidate === undefined ? hold.outputTokens : sentLimit(call, candidate);
    if (sent !== undefined) headers["x-gateway-max-tokens"] = String(sent);
  }
  const dropped = droppedParameters(call.plan, candidate);
  if (dropped.length > 0) headers[DROPPED_PARAMETERS] = headerText(dropped.join(", "));
  const { transformed } = call.plan;
  const isTransformed = candidate === undefined ? transformed?.size : transformed?.has(candidate);
  if (isTransformed) {
    headers[TRANSFORMS] = "middle-out";
  }
  if (candidate === undefined) return headers;
  headers["x-gateway-provider"] = candidate.providerId;
  headers["x-gateway-model"] = candidate.model.id;
  explain(headers, call, result);
  return headers;
}

/** Returns the headers of a response to a call before any candidate was tried. */
export function admittedHeaders(call: Call): Record<string, string> {
  return answerHeaders(call, undefined, UNTRIED);
}

const UNTRIED: FailoverResult = { attemptLog: [], unhealthy: [], saturated: [], untried: [] };

/**
 * Returns those headers that describe the request to the provider. They also apply to later requests that
 * get the same answer from the cache.
 */
export function providerCallHeaders(
  headers: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const names = [DROPPED_PARAMETERS, TRANSFORMS].filter((name) => headers[name] !== undefined);
  return Object.fromEntries(names.map((name) => [name, headers[name]!]));
}

/**
 * Adds the headers of an answer from the response cache: its provider and model, and how the provider was
 * called.
 */
export function addHitHeaders(
  headers: Record<string, string>,
  call: Call,
  figures: MeteredFigures,
  providerHeaders: Readonly<Record<string, string>>,
): void {
  Object.assign(headers, call.lifetime.responseHeaders, providerHeaders);
  headers["x-gateway-provider"] = figures.provider;
  headers["x-gateway-model"] = figures.model;
  addChargeHeaders(headers, figures);
}

/** Adds the headers that a whole answer's charge determines. */
export function addChargeHeaders(headers: Record<string, string>, figures: MeteredFigures): void {
  headers["x-gateway-latency-ms"] = String(figures.latencyMs);
  addCostHeader(headers, figures);
}

export function addCostHeader(
  headers: Record<string, string>,
  { chargeNano }: Pick<MeteredFigures, "chargeNano">,
): void {
  headers["x-gateway-cost"] = usdText(chargeNano);
}

/**
 * Adds the tried and the saturated endpoints to the headers of an error response, if the caller requested the
 * route.
 */
export function explainFailure(call: Call, result: FailoverResult): void {
  if (result.attemptLog.length === 0 && result.saturated.length === 0) return;
  const headers = { ...call.lifetime.responseHeaders };
  explain(headers, call, result);
  call.lifetime.responseHeaders = headers;
}

/**
 * Returns the parameters that the candidate does not get. The headers of a stream can be sent before the
 * serving candidate is known. In that case, returns the parameters that any candidate does not support, so
 * that none is dropped silently.
 */
function droppedParameters(plan: RoutePlan, candidate: Candidate | undefined): readonly string[] {
  if (plan.unsupported === undefined) return [];
  if (candidate !== undefined) return plan.unsupported.get(candidate)?.listed ?? [];
  return [...new Set([...plan.unsupported.values()].flatMap(({ listed }) => listed))];
}

function explain(
  headers: Record<string, string>,
  { explainsRoute, plan }: Call,
  result: FailoverResult,
): void {
  if (!explainsRoute) return;
  const { candidates, sortedBy, skipped = [] } = plan;
  const parts: [string, readonly string[]][] = [
    ["planned", candidates.map(({ endpointId }) => endpointId)],
    ["tried", result.attemptLog],
    ["sorted by", sortedBy === undefined ? [] : [sortedBy]],
    ["unhealthy", result.unhealthy],
    ["full", result.saturated],
    ["not needed", result.untried],
    ["skipped", skipped.map(({ baseEndpointId, reason }) => `${baseEndpointId}=${reason}`)],
  ];
  const shown = parts.filter(([, list], at) => at < 2 || list.length > 0);
  headers["x-gateway-route-explain"] = headerText(
    shown.map(([name, list]) => `${name}: ${list.join(", ")}`).join("; "),
  );
}

/**
 * Replaces characters that a header cannot contain. Names come from configurations, which allow any
 * character.
 */
function headerText(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, "?").slice(0, MAX_HEADER_CHARACTERS);
}
