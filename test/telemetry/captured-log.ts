import type { RequestRecord } from "../../src/platform/telemetry/interface.ts";
import type { LogDestination } from "../../src/platform/telemetry/log-writer.ts";

/** Keeps what is logged, so that a test can read it. */
export class CapturedLog implements LogDestination {
  text = "";
  flushes = 0;
  readonly droppedLines = 0;

  write(line: string): void {
    this.text += line;
  }

  flushSync(): void {
    this.flushes++;
  }

  async close(): Promise<void> {}

  /** Each line on its own must be JSON. */
  lines(): Record<string, unknown>[] {
    const lines = this.text.split("\n");
    if (lines.pop() !== "") throw new Error("the log does not end with a line feed");
    return lines.map((line) => JSON.parse(line));
  }
}

export const CHAT_RECORD: RequestRecord = {
  requestId: "req_019aa1b2c3d4e5f60718293a4b5c6d7e",
  method: "POST",
  route: "/v1/chat/completions",
  status: 200,
  latencyMs: 812.3456,
  organizationId: "org_019aa1b2c3d4e5f60718293a4b5c6d7e",
  keyId: "key_019aa1b2c3d4e5f60718293a4b5c6d7e",
  model: "openai/gpt-4o-mini",
  provider: "openai",
  promptTokens: 120,
  completionTokens: 30,
  costNano: 37_440n,
  firstTokenMs: 210.5,
  errorCode: undefined,
  cache: undefined,
};

/** A request that was refused before any provider was chosen. */
export function refused(errorCode: string, status: number, model?: string): RequestRecord {
  return {
    ...CHAT_RECORD,
    status,
    errorCode,
    model,
    provider: undefined,
    promptTokens: undefined,
    completionTokens: undefined,
    costNano: undefined,
    firstTokenMs: undefined,
  };
}
