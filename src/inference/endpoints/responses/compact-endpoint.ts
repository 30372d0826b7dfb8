import type { RouteDefinition } from "../../../http/route.ts";
import { brokenAnswer } from "../../../providers/transport/call-failures.ts";
import type { AnswerFacts } from "../../call/endpoint.ts";
import { PaidCall, type PaidCallDependencies } from "../../call/run-call.ts";
import type { HostedServices } from "../../tools/hosted-services.ts";
import type { LongBodies } from "../long-bodies.ts";
import { paidRoute } from "../paid-route.ts";
import type { AcceptedResponse } from "./accepted.ts";
import { COMPACT_ROUTE } from "./compaction.ts";
import { ResponsesEndpoint } from "./endpoint.ts";
import { readLongResponses } from "./long-responses.ts";
import { TurnPreparation } from "./prepared-turn.ts";
import { nameOfResponse, responseId, usageOf } from "./response-json.ts";
import type { ResponseStore } from "./response-store.ts";
import { ResponseStoreWriter } from "./response-store-writer.ts";
import { compactedResponse, responsesBody } from "./schema.ts";
import { compactedContent } from "./summary-content.ts";
import type { WholeOutput } from "./whole-response.ts";

/** Compacts conversations. A model summarises the conversation in one call, and the summary becomes one item. */
class CompactEndpoint extends ResponsesEndpoint {
  override readonly route = COMPACT_ROUTE;
  override readonly title = "Compaction";

  override async call(
    ...call: Parameters<ResponsesEndpoint["call"]>
  ): ReturnType<ResponsesEndpoint["call"]> {
    const output = await super.call(...call);
    if (summaryOf(output) === "") throw brokenAnswer("no summary");
    return output;
  }

  override answer(
    output: WholeOutput,
    { createdAt }: AcceptedResponse,
    { requestId, usage, costUsd }: AnswerFacts,
  ): string {
    const name = nameOfResponse(requestId);
    const item = { id: `cmp_${name}00`, type: "compaction" };
    return JSON.stringify({
      id: responseId(name),
      object: "response.compaction",
      created_at: createdAt,
      output: [{ ...item, encrypted_content: compactedContent(summaryOf(output)) }],
      usage: usageOf(usage, costUsd),
    });
  }
}

/** Returns the text of the model's answer. */
function summaryOf({ body }: WholeOutput): string {
  const text = typeof body === "string" ? body : Buffer.from(body).toString("utf8");
  const items = JSON.parse(`[${text}]`) as { type: string; content?: { text?: unknown }[] }[];
  const parts = items.flatMap(({ type, content }) => (type === "message" ? (content ?? []) : []));
  return parts
    .map((part) => (typeof part.text === "string" ? part.text : ""))
    .join("")
    .trim();
}

/**
 * Returns the route POST /v1/responses/compact, which replaces a conversation with one item and supports any
 * chat model.
 */
export function compactRoute(
  dependencies: PaidCallDependencies,
  longBodies: LongBodies,
  store: ResponseStore,
  hosted: HostedServices,
): RouteDefinition {
  const { clock } = dependencies.calls;
  const storeWriter = new ResponseStoreWriter(store);
  const endpoint = new CompactEndpoint({ clock, storeWriter, hosted });
  const { prepare } = new TurnPreparation({
    ...dependencies,
    store,
    longBodies,
    isCompacted: true,
  });
  const description: Parameters<typeof paidRoute>[1] = {
    path: "/v1/responses/compact",
    tag: "Responses",
    operationId: "responses.compact",
    summary: "Compact conversation",
    access: { kind: "model", scope: "responses" },
    body: responsesBody,
    allowsUnknownFields: true,
    readLongBody: (bytes, owner, signal) =>
      readLongResponses(longBodies, bytes, owner, signal, "responses.compact"),
    responses: { 200: { description: "The compaction.", schema: compactedResponse } },
  };
  return paidRoute(new PaidCall(dependencies, endpoint), description, prepare);
}
