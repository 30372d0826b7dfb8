import type { GatewayConfig } from "../../config.ts";
import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { buildCatalogue } from "../../providers/catalogue/build-catalogue.ts";
import type { LiveTarget } from "./check-live.ts";
import { type Finding, ok, warning, wrong } from "./finding.ts";

const NAME = "models";

/** Whether the models of the configuration make a catalogue, how many each provider serves, and which. */
export async function checkCatalogue(
  config: GatewayConfig,
  nowMs: number,
): Promise<{ readonly findings: readonly Finding[]; readonly targets: readonly LiveTarget[] }> {
  const { providers, models, sandbox } = config;
  let catalogue: readonly CatalogueModel[];
  try {
    catalogue = await buildCatalogue({ providers, models, sandbox, now: new Date(nowMs) });
  } catch (error) {
    const targets = providers.map((provider) => ({ provider, models: [] }));
    return { findings: [wrong(NAME, error)], targets };
  }
  const targets = providers.map((provider) => ({
    provider,
    models: namesAt(provider.id, catalogue),
  }));
  const findings = targets.map(({ provider, models: served }) => {
    const name = `${NAME} of ${provider.id}`;
    return served.length === 0 ? warning(name, "none") : ok(name, `${served.length}`);
  });
  return { findings, targets };
}

function namesAt(providerId: string, catalogue: readonly CatalogueModel[]): string[] {
  const names = catalogue.flatMap(({ endpoints }) =>
    endpoints.filter(({ provider }) => provider === providerId).map(({ model }) => model),
  );
  return [...new Set(names)];
}
