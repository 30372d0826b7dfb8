import type { FirstOrganization } from "../../db/queries/organizations.ts";
import type { GatewayConfig } from "../config.ts";
import { usdText } from "../lib/money.ts";
import { planFeeBasisPoints } from "../money/plans.ts";
import type { Telemetry } from "../telemetry/interface.ts";
import { baseUrl, type FirstKeys, type FirstStart, writeFirstKeys } from "./first-keys.ts";

/** Says where the gateway is reached, where its first keys are, and what the default organization may spend. */
export function announce(
  telemetry: Telemetry,
  config: GatewayConfig,
  port: number,
  { keys, organization }: FirstStart,
): void {
  const url = baseUrl(config, port);
  if (keys?.kind === "shown") process.stdout.write(`\n  Base URL         ${url}\n\n`);
  else if (keys?.kind === "file") announceFile(telemetry, url, keys);
  if (organization !== undefined) telemetry.log.info(describe(organization));
  telemetry.log.info({ port }, `listening on ${url}`);
}

const BASIS_POINTS_OF_A_PERCENT = 100;

function describe(organization: FirstOrganization): string {
  const { id, name, plan, balanceNano, creditLimitNano } = organization;
  const fee = organization.feeBasisPoints ?? planFeeBasisPoints(plan);
  const percent = Number(fee) / BASIS_POINTS_OF_A_PERCENT;
  const limit =
    creditLimitNano === null
      ? ", which may be overdrawn without limit"
      : creditLimitNano > 0n
        ? `, which may be overdrawn by ${usdText(creditLimitNano)} USD`
        : "";
  return `${name} (${id}): plan ${plan}, fee ${percent} %, credit ${usdText(balanceNano)} USD${limit}`;
}

/** The address in it may not have been known before the gateway listened, or be that of an earlier start. */
function announceFile(
  { log }: Telemetry,
  url: string,
  { path, file }: FirstKeys & { readonly kind: "file" },
): void {
  try {
    if (file.base_url !== url) writeFirstKeys(path, { ...file, base_url: url });
  } catch {
    log.warn(`the base_url in ${path} could not be brought up to date`);
  }
  log.info(`the first keys are in ${path}; keep them and delete the file`);
}
