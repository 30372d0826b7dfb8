import { expect } from "bun:test";
import type { Recipe } from "./recipe.ts";

const ENDPOINT = `import { Type } from "typebox";
import type { RouteDefinition } from "../../../http/route.ts";
import { exact, times } from "../../../lib/exact-integer.ts";
import { NO_TOKENS } from "../../../lib/usage.ts";
import type { Provider, RecognizedText } from "../../../providers/interface.ts";
import { providerRequest } from "../../call/call.ts";
import {
  type AcceptedRequest,
  assertRecordable,
  type CommonFields,
  fixedBound,
  type PaidEndpoint,
} from "../../call/endpoint.ts";
import type { PaidCallDependencies } from "../../call/run-call.ts";
import { jsonRoute } from "../json-route.ts";
import { routedFields } from "../routed-fields.ts";

const MAX_PAGES = 10;

const ocrBody = Type.Object({ model: Type.String(), document: Type.String(), ...routedFields });
const ocrAnswer = Type.Object(
  {
    pages: Type.Array(Type.String()),
    usage: Type.Object({ pages: Type.Integer(), cost: Type.Number() }),
  },
  { title: "RecognizedText" },
);

interface AcceptedOcr extends AcceptedRequest {
  readonly fields: CommonFields & { readonly document: string };
}

/** Returns the route POST /v1/ocr. */
export function ocrRoute(dependencies: PaidCallDependencies): RouteDefinition {
  return jsonRoute(dependencies, ocrEndpoint, {
    path: "/v1/ocr",
    tag: "Rerank",
    operationId: "ocr.create",
    summary: "Read the text of a document",
    access: { kind: "model", scope: "chat:completions" },
    body: ocrBody,
    responses: { 200: { description: "The text of each page.", schema: ocrAnswer } },
  });
}

const ocrEndpoint: PaidEndpoint<AcceptedOcr, RecognizedText> = {
  route: "POST /v1/ocr",
  categories: ["ocr"],
  capability: "recognize",
  title: "OCR",
  accept(body) {
    const fields = body as AcceptedOcr["fields"];
    assertRecordable(fields);
    return { fields };
  },
  bound: (_, { prices }) => fixedBound(times(MAX_PAGES, exact(prices.pageFemto ?? 0n)), 0),
  statedLimit: () => 0,
  call(call, candidate, { request }) {
    const { recognize } = candidate.provider as Required<Pick<Provider, "recognize">>;
    return recognize(providerRequest(call, { document: request.fields.document }));
  },
  usage: ({ pages }) => ({ ...NO_TOKENS, pages: pages.length, estimated: false }),
  answer: ({ pages }, _, { usage, costUsd }) =>
    JSON.stringify({ pages, usage: { pages: usage.pages ?? 0, cost: costUsd } }),
};
`;

const PROVIDER = `import { isFields } from "../../lib/json.ts";
import type { Provider, ProviderSettings, RecognizedText } from "../interface.ts";
import type { ProviderDependencies } from "../registry.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { requestHeaders } from "./chat/chat-provider.ts";
import { failureOfStatus } from "./failure-mapping.ts";
import { openAiVariant } from "./openai-variants.ts";

/** Returns a function that reads the text of documents. */
export function recognizer(
  settings: ProviderSettings,
  { clock, httpClient }: ProviderDependencies,
): NonNullable<Provider["recognize"]> {
  const headers = requestHeaders(settings, openAiVariant(settings.type));
  const wire = new HttpJsonProvider({ settings, headers, clock, httpClient, failureOfStatus });
  const url = endpointUrl(settings.baseUrl, "/ocr");
  return async (call) => {
    const { model, document } = call;
    const response = await wire.post(url, JSON.stringify({ model, document }), call);
    return wire.read(response, recognizedText, {}, call);
  };
}

/** Reads \`{pages}\`. Throws ProviderFailure if the text has no pages. */
const recognizedText = new AnswerRead(import.meta.url, (text, _: object): RecognizedText => {
  const body = parsedAnswer(text);
  if (!isFields(body) || !Array.isArray(body.pages)) throw brokenAnswer("no pages");
  return { pages: body.pages.map(String) };
});
`;

const TYPES = `/** A call that reads the text of a document. */
export interface OcrCall extends ModelCall {
  readonly document: string;
}

export interface RecognizedText {
  /** The text of each page. */
  readonly pages: readonly string[];
}

`;

/** A provider that reads documents. */
const scanner = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch: () => Response.json({ pages: ["First.", "Second."] }),
});
scanner.unref();

/** An endpoint that is billed by the pages of \`unit.ts\`. */
export const endpoint: Recipe = {
  heading: "A billed endpoint",
  edits: [
    { path: "src/inference/endpoints/ocr/endpoint.ts", change: ENDPOINT },
    {
      path: "src/inference/endpoints/table.ts",
      change: [
        {
          before: 'import { rerankRoute } from "./rerank/endpoint.ts";\n',
          insert: 'import { ocrRoute } from "./ocr/endpoint.ts";\n',
        },
        { after: "    moderationsRoute(dependencies),\n", insert: "    ocrRoute(dependencies),\n" },
      ],
    },
    {
      path: "src/http/limited-keys.ts",
      change: [{ after: '  "POST /v1/moderations",\n', insert: '  "POST /v1/ocr",\n' }],
    },
    {
      path: "src/providers/interface.ts",
      change: [
        {
          after: "  rerank?(call: RerankCall): Promise<Ranking>;\n",
          insert: "  recognize?(call: OcrCall): Promise<RecognizedText>;\n",
        },
        { replace: '  | "rerank";', by: '  | "rerank"\n  | "recognize";' },
        { before: "export interface EmbedCall extends ModelCall {\n", insert: TYPES },
      ],
    },
    {
      path: "src/providers/registry.ts",
      namedAs: "the file that builds the provider's bundle",
      change: [
        {
          before: 'import { answeringClient, recordedRequest } from "./recorded-calls.ts";\n',
          insert: 'import { recognizer } from "./openai/ocr.ts";\n',
        },
        {
          after: "      rerank: provider.rerank,\n",
          insert: "      recognize: recognizer(settings, dependencies),\n",
        },
        { after: "  rerank: true,\n", insert: "  recognize: true,\n" },
      ],
    },
    { path: "src/providers/openai/ocr.ts", namedAs: "in the provider's folder", change: PROVIDER },
  ],
  configuration: {
    providers: [
      {
        id: "scanner",
        type: "openai-compatible",
        base_url: `http://127.0.0.1:${scanner.port}/v1`,
        api_key: "sk-scanner-0123456789",
      },
    ],
    models: [
      {
        id: "test/ocr",
        category: "ocr",
        cost_per_page: 0.002,
        endpoints: [{ provider: "scanner", model: "ocr-1" }],
      },
    ],
  },
  async prove({ call }) {
    const body = { model: "test/ocr", document: "https://documents.test/a.pdf" };
    const { status, body: answer } = await call("POST", "/v1/ocr", { key: "secret", body });
    expect(status).toBe(200);
    expect(answer.pages).toEqual(["First.", "Second."]);
    expect((answer.usage as { pages: number }).pages).toBe(2);
    const { body: log } = await call("GET", "/v1/credits/transactions?limit=1");
    expect(log.data).toMatchObject([{ model: "test/ocr", details: { pages: 2 } }]);
    for (const group of ["model", "user", "key"]) {
      const { body: usage } = await call("GET", `/v1/usage?group_by=${group}`);
      expect(usage.data).toContainEqual(expect.objectContaining({ pages: 2 }));
    }
    await scanner.stop(true);
  },
};
