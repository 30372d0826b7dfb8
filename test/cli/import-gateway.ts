import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startTestGateway } from "../support/gateway.ts";
import { MASTER_KEY } from "../support/master-key.ts";
import { addOperator } from "../support/operator-keys.ts";
import { runCliHere } from "./cli-runs.ts";

type Fields = Record<string, unknown>;

/** Starts a gateway without providers, into which `imported` imports. */
export async function startImportGateway() {
  const folder = mkdtempSync(join(tmpdir(), "gateway-import-"));
  const gateway = await startTestGateway({ configuration: {} });
  const operator = await addOperator(gateway);
  /** Variables of the command line. Tests add their own. */
  const environment: Record<string, string> = {
    DATABASE_URL: gateway.databaseUrl,
    GATEWAY_MASTER_KEY: Buffer.from(MASTER_KEY).toString("base64"),
    DATA_DIR: folder,
  };
  return {
    gateway,
    folder,
    operator,
    environment,
    /** Runs `import <format>` on a text. */
    imported(format: string, text: string, ...args: readonly string[]) {
      const path = join(folder, `${Bun.hash(text)}.txt`);
      writeFileSync(path, text);
      return runCliHere(environment, "import", format, path, ...args);
    },
    /** Returns the stored entries of `providers`, `models` or `aliases`, as the gateway shows them. */
    async stored(kind: string): Promise<Fields[]> {
      const path = `/v1/admin/${kind}`;
      const response = await gateway.request("GET", path, undefined, { key: operator });
      const { data } = (await response.json()) as { data: Fields[] };
      return data.filter(({ source }) => source === "stored");
    },
    /** Returns kind, id and version of each stored entry. */
    async entries() {
      const rows = await gateway.sql`
        SELECT kind, id, version FROM configuration_entries
        WHERE deleted_at IS NULL ORDER BY kind, id`;
      return [...rows];
    },
    chat(model: string) {
      const messages = [{ role: "user", content: "Hi" }];
      return gateway.request("POST", "/v1/chat/completions", { model, messages });
    },
    async stop() {
      await gateway.stop();
      rmSync(folder, { recursive: true });
    },
  };
}

export type ImportGateway = Awaited<ReturnType<typeof startImportGateway>>;
