import type { LiveConfiguration } from "../../inference/models/live-configuration.ts";
import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { requestsModelList } from "../../platform/config/provider-types.ts";
import { askModelList } from "../../providers/catalogue/ask-model-list.ts";
import { ShortBody } from "../../providers/chat-body.ts";
import { type Provider, ProviderFailure } from "../../providers/interface.ts";
import { modelListUrl } from "../../providers/model-list-request.ts";
import type { HttpClient } from "../../providers/transport/provider-response.ts";

const CHAT_TIMEOUT_MS = 15_000;
const MAX_LISTED_MODELS = 1_000;
const MAX_MESSAGE_CHARACTERS = 1_000;

/** The result of a test of a provider (contract §13). */
export interface ProviderTest {
  readonly ok: boolean;
  /** The HTTP status of the last answer of the provider. Null if it did not answer. */
  readonly status: number | null;
  readonly latency_ms: number;
  /** The requests that were sent, in order. */
  readonly sent: readonly string[];
  /** The names of the models that the provider lists. Absent if its type has no such list. */
  readonly models?: readonly string[];
  /** The provider's message, or the reason why it did not answer. Absent if the test has succeeded. */
  readonly message?: string;
}

/** Returns true if the provider answers. A provider that rejects the key or the request answers too. */
export async function isReachable({ checkKey }: Pick<Provider, "checkKey">): Promise<boolean> {
  try {
    await checkKey?.();
    return true;
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error;
    return error.status !== undefined || (error.kind !== "unavailable" && error.kind !== "timeout");
  }
}

/**
 * Requests the model list of a provider. If a model is named, also sends it a chat with one token of output, which the
 * provider may charge. A failure of the provider is a result.
 *
 * @param model the provider's name of the model
 */
export async function testProvider(
  live: LiveConfiguration,
  httpClient: HttpClient,
  id: string,
  model?: string,
): Promise<ProviderTest> {
  const config = live.config.providers.find((provider) => provider.id === id);
  if (config === undefined) {
    throw new GatewayError("provider_not_found", `There is no provider "${id}".`);
  }
  const provider = live.create(id);
  const startedMs = performance.now();
  const sent: string[] = [];
  let models: readonly string[] | undefined;
  let status: number | null = null;
  const result = (more: Pick<ProviderTest, "ok" | "message">): ProviderTest => ({
    ...{ ok: more.ok, status, latency_ms: Math.round(performance.now() - startedMs), sent },
    ...(models !== undefined && { models }),
    ...(more.message !== undefined && { message: more.message }),
  });
  try {
    const lists = requestsModelList(config.type);
    sent.push(
      `GET ${lists ? modelListUrl(config.type, config.baseUrl) : `${config.baseUrl}/models`}`,
    );
    await provider.checkKey?.();
    status = 200;
    if (lists) {
      const listed = await askModelList(httpClient, config);
      models = listed.slice(0, MAX_LISTED_MODELS).map(({ name }) => name);
    }
    if (model !== undefined) {
      sent.push(`chat with ${model}, at most 1 token of output`);
      await sendChat(provider, model);
    }
    return result({ ok: true });
  } catch (error) {
    if (error instanceof ProviderFailure) status = error.status ?? null;
    else if (!(error instanceof Error)) throw error;
    return result({ ok: false, message: messageOf(error) });
  }
}

/** Tests the first endpoint of a model. */
export function testModel(
  live: LiveConfiguration,
  httpClient: HttpClient,
  model: CatalogueModel,
): Promise<ProviderTest> {
  const [endpoint] = model.endpoints;
  const isText = model.category === "chat" || model.category === "code";
  return testProvider(live, httpClient, endpoint!.provider, isText ? endpoint!.model : undefined);
}

async function sendChat(provider: Provider, model: string): Promise<void> {
  if (provider.chat === undefined) {
    throw new ProviderFailure("rejected", "a provider of this type has no chats");
  }
  await provider.chat({
    model,
    requestId: newId("req"),
    signal: AbortSignal.timeout(CHAT_TIMEOUT_MS),
    stream: false,
    body: new ShortBody({
      ...{ model, stream: false, max_tokens: 1 },
      messages: [{ role: "user", content: "Hi" }],
    }),
  });
}

/** Returns the messages of an error and of its causes, such as the provider's own message and that of the connection. */
function messageOf(error: unknown): string {
  const messages: string[] = [];
  for (let one = error; one instanceof Error; one = one.cause) {
    if (!messages.includes(one.message)) messages.push(one.message);
  }
  const text = messages.join(": ").slice(0, MAX_MESSAGE_CHARACTERS);
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;
}
