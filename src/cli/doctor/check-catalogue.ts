import type { GatewayConfig } from "../../config.ts";
import type { Catalogue } from "../../providers/catalogue/build-catalogue.ts";
import { knownCatalogue } from "../known-catalogue.ts";
import type { LiveTarget } from "./check-live.ts";
import { type Finding, ok, warning, wrong } from "./finding.ts";

const NAME = "models";

/** Whether the models of the configuration make a catalogue, how many each provider serves, and which. */
export async function checkCatalogue(
  config: GatewayConfig,
  nowMs: number,
): Promise<{ readonly findings: readonly Finding[]; readonly targets: readonly LiveTarget[] }> {
  const { providers } = config;
  let catalogue: Catalogue;
  try {
    catalogue = await knownCatalogue(config, nowMs);
  } catch (error) {
    const targets = providers.map((provider) => ({ provider, models: [] }));
    return { findings: [wrong(NAME, error)], targets };
  }
  const targets = providers.map((provider) => ({
    provider,
    models: namesAt(provider.id, catalogue),
  }));
  const findings = catalogue.reports.map(({ provider, models: served, leftOut, reason }) => {
    const name = `${NAME} of ${provider}`;
    if (served === 0) return warning(name, reason ?? "none");
    const rest =
      leftOut.length === 0 ? "" : `; ${leftOut.length} left out (models list --left-out)`;
    return ok(name, `${served}${rest}`);
  });
  return { findings, targets };
}

function namesAt(providerId: string, catalogue: Catalogue): string[] {
  const names = catalogue.models.flatMap(({ endpoints }) =>
    endpoints.filter(({ provider }) => provider === providerId).map(({ model }) => model),
  );
  return [...new Set(names)];
}
