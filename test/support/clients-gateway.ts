import { tmpdir } from "node:os";
import { startUpstream, type Upstream } from "../upstream/server.ts";
import { addSecretKey } from "./api-keys.ts";
import { type FilesGateway, startFilesGateway } from "./files-gateway.ts";
import type { MessageReplays } from "./message-replays.ts";

/** The gateway's own tries. */
const TRIES = 3;

/** What a client in another language says of one of its checks, as a line of JSON. */
interface Outcome {
  readonly client: string;
  readonly tried: string;
  readonly error: string | null;
}

export interface ClientRun {
  /** Throws where the check failed, or the client did not speak of it. */
  expectPassed(client: string, tried: string): void;
}

export interface ClientsGateway extends FilesGateway {
  readonly upstream: Upstream;
  /** Runs a client's checks to their end. */
  runChecks(
    command: readonly string[],
    timeoutMs: number,
    environment?: Record<string, string>,
  ): Promise<ClientRun>;
}

/**
 * A gateway for clients in other languages: with OpenAI replayed, the sandbox, and models of a provider that
 * does not answer (`test/silent`), answers 408 (`test/timed-out`), breaks off (`test/cut`), recovers (`test/recovering-<name>`), or does what a
 * test tells it to (`test/agent`); `test/speaking` speaks, `test/speaking-cut` breaks off, and
 * `test/listening` transcribes.
 *
 * @param names one for each client that tries a provider that recovers
 * @param replays models that answer with recordings, besides
 */
export async function startClientsGateway(
  names: readonly string[],
  replays?: MessageReplays,
): Promise<ClientsGateway> {
  const upstream = await startUpstream();
  const recovering = names.map((name) => `recovering-${name}`);
  const gateway = await startFilesGateway("disk", {
    environment: { OPENAI_API_KEY: "sk-upstream-0123456789", OPENAI_BASE_URL: upstream.baseUrl },
    configuration: configuration(
      upstream.baseUrl,
      ["agent", "silent", "timed-out", "cut", ...recovering],
      replays,
    ),
  });
  script(upstream, recovering);
  replays?.script(upstream);
  const poor = await gateway.addOrganization({ creditUsd: 0 });
  return {
    ...gateway,
    upstream,
    async runChecks(command, timeoutMs, environment = {}) {
      return runChecks(command, timeoutMs, {
        PATH: process.env.PATH ?? "",
        HOME: tmpdir(),
        GATEWAY_URL: gateway.baseUrl,
        SECRET_KEY: gateway.secretKey,
        GATEWAY_POOR_KEY: poor.secretKey,
        // One for each run: its first call is let through.
        GATEWAY_LIMITED_KEY: await addSecretKey(gateway, { rateLimitRpm: 1 }),
        GATEWAY_MANAGEMENT_KEY: gateway.managementKey,
        ...environment,
      });
    },
    async stop() {
      await gateway.stop();
      await upstream.stop();
    },
  };
}

function configuration(
  baseUrl: string,
  slugs: readonly string[],
  replays: MessageReplays | undefined,
): object {
  const recorded = { id: "recorded", type: "anthropic", api_key: "sk-recorded" };
  return {
    providers: [
      { id: "replayed", type: "openai-compatible", base_url: baseUrl, api_key: "sk-replayed" },
      ...(replays === undefined ? [] : [{ ...recorded, base_url: replays.anthropicUrl }]),
    ],
    models: [
      ...slugs.map((slug) => modelAt("replayed", `test/${slug}`)),
      speakerAt("replayed", "test/speaking"),
      speakerAt("replayed", "test/speaking-cut"),
      listenerAt("replayed", "test/listening"),
      ...(replays?.replays ?? []).map(({ model, wire }) =>
        modelAt(wire === "anthropic" ? "recorded" : "replayed", model),
      ),
    ],
  };
}

function modelAt(provider: string, id: string): object {
  return {
    id,
    category: "chat",
    context_length: 200_000,
    max_output_tokens: 32_000,
    input_cost_per_token: 1e-7,
    output_cost_per_token: 1e-7,
    endpoints: [{ provider, model: id.slice(id.indexOf("/") + 1) }],
  };
}

function speakerAt(provider: string, id: string): object {
  return {
    id,
    category: "audio",
    cost_per_character: 1e-6,
    endpoints: [{ provider, model: id.slice(id.indexOf("/") + 1) }],
  };
}

function listenerAt(provider: string, id: string): object {
  return {
    id,
    category: "audio",
    cost_per_second: 1e-4,
    endpoints: [{ provider, model: id.slice(id.indexOf("/") + 1) }],
  };
}

function script({ behave, enqueue }: Upstream, recovering: readonly string[]): void {
  behave("silent", { do: "stall" });
  behave("timed-out", { do: "error", status: 408 });
  behave("cut", { do: "cut", events: 8, afterEvents: 5 });
  for (const model of recovering) {
    enqueue(model, ...Array.from({ length: TRIES }, () => ({ do: "error", status: 500 }) as const));
    behave(model, { do: "complete", content: "recovered" });
  }
}

async function runChecks(
  command: readonly string[],
  timeoutMs: number,
  environment: Record<string, string>,
): Promise<ClientRun> {
  const child = Bun.spawn([...command], {
    env: environment,
    stdio: ["ignore", "pipe", "pipe"],
    timeout: timeoutMs,
    killSignal: "SIGKILL",
  });
  const [output, besides] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  const lines = output.split("\n").filter((line) => line.startsWith("{"));
  const outcomes = lines.map((line) => JSON.parse(line) as Outcome);
  return {
    expectPassed(client, tried) {
      const outcome = outcomes.find((one) => one.client === client && one.tried === tried);
      if (outcome === undefined)
        throw new Error(`it wrote no message of it\n${besides.slice(-4_000)}`);
      if (outcome.error !== null) throw new Error(outcome.error);
    },
  };
}
