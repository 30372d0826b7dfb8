import { chmodSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Database } from "../../../db/client.ts";
import { findKeysByHash } from "../../../db/queries/api-keys.ts";
import {
  type FirstOrganization,
  findFirstOrganization,
} from "../../../db/queries/organizations.ts";
import { version } from "../../../package.json";
import {
  addOperatorKey,
  createFirstOrganization,
} from "../../accounts/organizations/organizations.ts";
import { firstOperatorLink } from "../../accounts/people/accounts.ts";
import { linkUrl } from "../../accounts/people/one-time-links.ts";
import { hashApiKey } from "../../lib/api-key-format.ts";
import { usdText } from "../../lib/money.ts";
import { feePercentOf } from "../../lib/plans.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { bannerText, keysText } from "./banner.ts";
import { asDataFolderFault } from "./database.ts";
import { baseUrl } from "./port.ts";

const FILE_NAME = "first-keys.json";

/** The output of the first keys: the terminal, or a file. */
type FirstKeys =
  | {
      readonly kind: "shown";
      readonly secretKey: string;
      /** The token of the link that creates the account of the first operator. */
      readonly operatorToken: string | undefined;
    }
  | { readonly kind: "file"; readonly path: string; readonly file: FirstKeysFile };

/** The first keys and the default organization, which the start logs. */
interface FirstStart {
  /** Undefined after the first start, if their file is deleted. */
  readonly keys: FirstKeys | undefined;
  readonly organization: FirstOrganization | undefined;
}

/**
 * Creates the default organization at the first start. Its keys are shown once, before they are valid: on a
 * terminal, or in a file that only its owner can read. A later start returns that file while it exists, because the
 * first start may have ended before it could log the path. Every start adds the operator key of the environment.
 */
export async function createFirstKeys(
  config: GatewayConfig,
  sql: Database,
  print: ((text: string) => void) | undefined,
): Promise<FirstStart> {
  const path = join(config.dataDir, FILE_NAME);
  let firstKeys: FirstKeys | undefined;
  let operatorToken: string | undefined;
  const prepared = await createFirstOrganization(
    sql,
    {
      name: "Default organization",
      plan: config.plan,
      startingCreditNano: config.startingCreditNanoUsd,
      managementKey: config.managementKey,
      secretKey: config.secretKey,
    },
    Date.now(),
    async ({ managementKey, secretKey }, transaction) => {
      // In this transaction, because the session of a start has a single connection.
      operatorToken = await firstOperatorLink(transaction, Date.now());
      // Before the next step, so that a later failure does not lose the keys.
      if (print !== undefined) {
        print(keysText({ managementKey, secretKey }));
        firstKeys = { kind: "shown", secretKey, operatorToken };
        return;
      }
      const file = {
        base_url: baseUrl(config),
        management_key: managementKey,
        secret_key: secretKey,
        ...(operatorToken !== undefined && {
          operator_url: linkUrl(baseUrl(config), "welcome", operatorToken),
        }),
      };
      try {
        mkdirSync(config.dataDir, { recursive: true });
        writeFirstKeys(path, file);
      } catch (error) {
        throw asDataFolderFault(config.dataDir, error);
      }
      firstKeys = { kind: "file", path, file };
    },
  );
  if (config.operatorKey !== undefined) {
    const key = { name: "GATEWAY_OPERATOR_KEY", secret: config.operatorKey };
    await addOperatorKey(sql, { ...key, nowMs: Date.now() });
  }
  const keys = prepared === undefined ? await readEarlierKeys(sql, path) : firstKeys;
  return { keys, organization: await findFirstOrganization(sql) };
}

/** Returns the file of an earlier start, or undefined if it is missing or its keys are not in this database. */
async function readEarlierKeys(sql: Database, path: string): Promise<FirstKeys | undefined> {
  const file = readFirstKeys(path);
  if (file === undefined) return undefined;
  const keys = [file.management_key, file.secret_key];
  const found = await findKeysByHash(keys.map(hashApiKey), Date.now()).run(sql);
  return found.size === keys.length ? { kind: "file", path, file } : undefined;
}

/** The content of the file of the first keys. */
interface FirstKeysFile {
  readonly base_url: string;
  readonly management_key: string;
  readonly secret_key: string;
  /** The link that creates the account of the first operator. */
  readonly operator_url?: string;
}

/** Writes the file so that only its owner can read it. The file is complete or absent. */
function writeFirstKeys(path: string, file: FirstKeysFile): void {
  const { base_url, management_key, secret_key, operator_url } = file;
  const draft = `${path}.new`;
  const text = JSON.stringify({ base_url, management_key, secret_key, operator_url }, null, 2);
  writeFileSync(draft, `${text}\n`, { mode: 0o600 });
  chmodSync(draft, 0o600);
  renameSync(draft, path);
}

/** Returns undefined if the file is missing or unreadable. */
function readFirstKeys(path: string): FirstKeysFile | undefined {
  try {
    const file = JSON.parse(readFileSync(path, "utf8")) as FirstKeysFile;
    const isWhole = [file.base_url, file.management_key, file.secret_key].every(
      (text: unknown) => typeof text === "string",
    );
    return isWhole ? file : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Logs the URL of the gateway, the path of the first keys, and the credit of the default organization. Prints the
 * banner on a terminal.
 */
export function announce(
  telemetry: Telemetry,
  config: GatewayConfig,
  port: number,
  { keys, organization }: FirstStart,
): void {
  const url = baseUrl(config, port);
  if (keys?.kind === "file") announceFile(telemetry, url, keys);
  if (organization !== undefined) telemetry.log.info(describe(organization));
  telemetry.log.info({ port }, `listening on ${url}`);
  const print = terminalOf(telemetry);
  if (print === undefined) return;
  const { secretKey, operatorToken } = keys?.kind === "shown" ? keys : {};
  const operatorUrl = operatorToken && linkUrl(url, "welcome", operatorToken);
  print(bannerText({ version, url, secretKey, operatorUrl, hasSandbox: hasSandbox(config) }));
}

/** Returns the function that prints on the terminal, or undefined if the standard output is none. */
export function terminalOf(telemetry: Telemetry): ((text: string) => void) | undefined {
  return process.stdout.isTTY === true ? (text) => telemetry.print(text) : undefined;
}

function hasSandbox({ providers }: GatewayConfig): boolean {
  return providers.some(({ type }) => type === "sandbox");
}

function describe(organization: FirstOrganization): string {
  const { id, name, plan, balanceNano, creditLimitNano } = organization;
  const percent = feePercentOf(organization);
  const limit =
    creditLimitNano === null
      ? ", no credit limit"
      : creditLimitNano > 0n
        ? `, credit limit ${usdText(creditLimitNano)} USD`
        : "";
  return `${name} (${id}): plan ${plan}, fee ${percent} %, credit ${usdText(balanceNano)} USD${limit}`;
}

/**
 * Logs the path of the file. First updates the URL in it, which may come from an earlier start, or was unknown before
 * the gateway listened.
 */
function announceFile(
  { log }: Telemetry,
  url: string,
  { path, file }: FirstKeys & { readonly kind: "file" },
): void {
  try {
    if (file.base_url !== url) {
      const link = file.operator_url?.replace(file.base_url, url);
      writeFirstKeys(path, { ...file, base_url: url, ...(link && { operator_url: link }) });
    }
  } catch {
    log.warn(`the base_url in ${path} could not be updated`);
  }
  log.info(`the first keys are in ${path}; store them elsewhere and delete the file`);
}
