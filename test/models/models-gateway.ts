import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const COSTS = { input_cost_per_token: 1.5e-7, output_cost_per_token: 6e-7 };
const CHAT = { category: "chat", context_length: 128_000, max_output_tokens: 16_384, ...COSTS };

/** Everything that the tests of models look for. No provider of theirs is ever called. */
const MODELS = [
  {
    ...CHAT,
    id: "acme/quill-4o-mini",
    name: "Quill 4o mini",
    description: "Small and quick.",
    capabilities: ["streaming", "function_calling", "vision", "json_mode"],
    created: 1_750_000_000,
    cached_input_cost_per_token: 7.5e-8,
    endpoints: [{ provider: "acme", model: "quill-4o-mini" }],
  },
  {
    ...CHAT,
    id: "acme/quill-4o",
    name: "Quill 4o",
    description: "Writes letters, reasons about them and answers in many languages.",
    capabilities: ["streaming", "function_calling"],
    endpoints: [{ provider: "acme", model: "quill-4o" }],
  },
  {
    ...CHAT,
    id: "acme/quill-3.5",
    name: "Quill 3.5",
    description: "The predecessor.",
    endpoints: [{ provider: "acme", model: "quill-3.5" }],
  },
  {
    ...CHAT,
    id: "acme/quill-2",
    name: "Quill 2",
    description: "Withdrawn.",
    is_active: false,
    endpoints: [{ provider: "acme", model: "quill-2" }],
  },
  {
    id: "acme/embedder",
    name: "Embedder",
    description: "Turns texts into vectors for retrieval.",
    category: "embedding",
    context_length: 8192,
    input_cost_per_token: 2e-8,
    endpoints: [{ provider: "acme", model: "embedder" }],
  },
  {
    ...CHAT,
    id: "zenith/programmer",
    name: "Zenith Programmer",
    description: "Programming model; compared with a quill it costs a tenth. Très précis.",
    category: "code",
    capabilities: ["streaming"],
    endpoints: [{ provider: "zenith", model: "programmer" }],
  },
  {
    ...CHAT,
    id: "zenith/quill-4o",
    name: "Quill 4o at Zenith",
    endpoints: [{ provider: "zenith", model: "quill-4o" }],
  },
  {
    ...CHAT,
    id: "zenith/search",
    name: "Zenith Search",
    endpoints: [{ provider: "zenith", model: "search" }],
  },
  {
    ...CHAT,
    id: "zenith/author/nested-x",
    name: "Nested X",
    endpoints: [{ provider: "zenith", model: "author/nested-x" }],
  },
];

const provider = (id: string) => ({
  id,
  type: "openai-compatible",
  base_url: "http://127.0.0.1:9/v1",
  api_key: "unused",
});

export interface ModelsGateway extends TestGateway {
  /** The answer to a GET, which must be 200. */
  get<Body>(path: string): Promise<Body>;
  /** Ids that a search finds, in order. */
  found(text: string, rest?: Record<string, string>): Promise<string[]>;
}

/** A gateway whose catalogue is exactly MODELS. */
export async function startModelsGateway(): Promise<ModelsGateway> {
  const providers = ["acme", "zenith"].map(provider);
  const configuration = { providers, models: MODELS, sandbox: false };
  const gateway = await startTestGateway({ configuration });
  const get = async <Body>(wanted: string): Promise<Body> => {
    const response = await gateway.request("GET", wanted);
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${wanted}: ${response.status} ${text}`);
    return JSON.parse(text) as Body;
  };
  return {
    ...gateway,
    get,
    async found(text, rest = {}) {
      const query = new URLSearchParams({ q: text, ...rest });
      const { data } = await get<{ data: { id: string }[] }>(`/v1/models/search?${query}`);
      return data.map(({ id }) => id);
    },
  };
}
