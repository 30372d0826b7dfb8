import { GatewayError } from "../../../lib/errors.ts";
import { ShortBody } from "../../../providers/chat-body.ts";
import type { AdmittedCall } from "../../call/call.ts";
import type { AcceptedRequest } from "../../call/endpoint.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { LongMessages } from "./long-messages.ts";
import { acceptsBeta, type CandidateNeeds } from "./plan-messages.ts";
import type { MessagesBody } from "./request.ts";
import { assertMessages } from "./request-checks.ts";
import { factsOf, type MessagesSource, shapedMessages } from "./request-facts.ts";

const MAX_HEADER_CHARACTERS = 4_096;
const VERSION = /^[\w.-]{1,64}$/;
const BETA = /^[\w.-]{1,128}$/;

/** An accepted request of the Messages API. */
export class AcceptedMessages implements AcceptedRequest {
  /** The request, translated to a chat call. */
  readonly fields: ChatRequest;
  readonly bodyHash: string | undefined;
  readonly maxTokens: number;
  readonly needs: CandidateNeeds;
  readonly source: MessagesSource;
  /** The client's `anthropic-version` header. */
  readonly version: string | undefined;

  constructor(source: MessagesSource, headers: Headers, isTranslated: boolean) {
    this.source = source;
    this.fields = source.chat;
    this.bodyHash = source.hash;
    this.maxTokens = source.chat.max_tokens ?? 0;
    const { chat, untranslated, unpriced, anthropicOnly } = source;
    const { size, nativeSize, hasCacheControl } = source;
    this.needs = {
      ...{ chat, untranslated, unpriced, anthropicOnly, size, nativeSize, hasCacheControl },
      maxTokens: this.maxTokens,
      betas: betasOf(headers),
      isTranslated,
    };
    this.version = versionOf(headers);
  }

  /** Returns the beta names that the candidate's provider accepts. */
  betasFor(candidate: Candidate): string[] {
    return this.needs.betas.filter((beta) => acceptsBeta(beta, candidate));
  }
}

export type AdmittedMessages = AdmittedCall<AcceptedMessages>;

/**
 * Accepts a request. Throws 400 if a block, a tool or a header is invalid.
 *
 * @param body has passed its schema
 */
export function acceptMessages(
  body: unknown,
  headers: Headers,
  isTranslated = false,
): AcceptedMessages {
  // The work thread has already checked a long body completely.
  if (body instanceof LongMessages) return new AcceptedMessages(body, headers, isTranslated);
  const request = body as MessagesBody;
  assertMessages(request);
  const source: MessagesSource = {
    ...factsOf(request),
    body: request,
    shapedAs: (shape) => new ShortBody(shapedMessages(request, shape)),
  };
  return new AcceptedMessages(source, headers, isTranslated);
}

function versionOf(headers: Headers): string | undefined {
  const version = headers.get("anthropic-version");
  if (version === null) return undefined;
  if (VERSION.test(version)) return version;
  throw invalidHeader("anthropic-version");
}

function betasOf(headers: Headers): string[] {
  const header = headers.get("anthropic-beta");
  if (header === null) return [];
  if (header.length > MAX_HEADER_CHARACTERS) throw invalidHeader("anthropic-beta");
  const betas = header
    .split(",")
    .map((beta) => beta.trim())
    .filter((beta) => beta !== "");
  if (!betas.every((beta) => BETA.test(beta))) throw invalidHeader("anthropic-beta");
  return [...new Set(betas)];
}

function invalidHeader(name: string): GatewayError {
  return new GatewayError("invalid_header", `The header ${name} has an invalid form.`, {
    param: name,
  });
}
