import { startUpstream, type Upstream } from "../upstream/server.ts";
import { startTestGateway, type TestGateway } from "./gateway.ts";

export interface BuiltInGateway extends TestGateway {
  readonly upstream: Upstream;
  /** With /v1, as SDKs take it. */
  readonly apiUrl: string;
}

/** A gateway as an operator has it who set OpenAI's key and nothing else, with OpenAI replayed. */
export async function startBuiltInGateway(): Promise<BuiltInGateway> {
  const upstream = await startUpstream();
  const gateway = await startTestGateway({
    environment: { OPENAI_API_KEY: "sk-upstream-0123456789", OPENAI_BASE_URL: upstream.baseUrl },
  });
  return {
    ...gateway,
    upstream,
    apiUrl: `${gateway.baseUrl}/v1`,
    async stop() {
      await upstream.stop();
      await gateway.stop();
    },
  };
}
