import { CopyText, Link } from "../components/controls.tsx";
import { Badge, Empty, Fact, LoadFailure, PageHead, Panel } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { date, integer, percent, titled, usdExact } from "../format.ts";
import { type ListedModel, modelPath, useOf, useTitle } from "../models/catalogue.ts";
import { isFree, PRICE_COLUMNS, type Pricing, pricesOf } from "../models/prices.tsx";
import { useResource } from "../resource.ts";
import { query } from "../router.ts";
import type { UsageRow } from "./usage-rows.ts";

interface Endpoint {
  readonly provider: string;
  readonly model: string;
  readonly context_length: number;
  readonly max_output_tokens: number;
  readonly pricing: Pricing;
}

interface ModelDetail extends ListedModel {
  readonly canonical_id?: string;
  readonly endpoints: readonly Endpoint[];
}

const DAY_MS = 86_400_000;
const DAYS = 7;
const MS_PER_SECOND = 1_000;

/** Error share from which a provider is marked as failing. */
const HIGH_ERROR_SHARE = 0.1;

/** The organization's own requests to a provider, and how many of them failed. */
interface RequestCounts {
  readonly requests: number;
  readonly errors: number;
}

const NO_REQUESTS: RequestCounts = { requests: 0, errors: 0 };

/** One model: capabilities, prices and providers. */
export function ModelDetailPage({ id }: { readonly id: string }) {
  const { data, error } = useResource<ModelDetail>(modelPath(id));
  const list = { ...Object.fromEntries(query.value), id: undefined };
  return (
    <>
      <p class="back">
        <Link page="models" query={list}>
          {query.value.get("view") === "compare" ? "← Compare models" : "← Models"}
        </Link>
      </p>
      <PageHead title={data?.name ?? "Model"}>
        {data !== undefined && useOf(data) === "chat" && (
          <Link page="playground" query={{ model: data.id }} class="button primary">
            Try in the playground
          </Link>
        )}
      </PageHead>
      {error !== undefined && <LoadFailure message={error} />}
      {data !== undefined && <Details model={data} />}
    </>
  );
}

function Details({ model }: { readonly model: ModelDetail }) {
  const { architecture, top_provider: top, image_pricing: images } = model;
  const long = model.long_prompt_pricing;
  const list = (names: readonly string[]) => (names.length === 0 ? null : names.join(", "));
  return (
    <>
      <div class="columns">
        <Panel title="Model" aside={<Badge>{useTitle(model)}</Badge>}>
          <CopyText label="model id" text={model.id} />
          {model.description !== "" && <p class="lead">{model.description}</p>}
          <dl class="facts">
            <Fact name="Endpoint of" value={model.canonical_id ?? null} />
            <Fact name="Context" value={`${integer(model.context_length)} tokens`} />
            <Fact
              name="Max output"
              value={
                top.max_completion_tokens === null
                  ? null
                  : `${integer(top.max_completion_tokens)} tokens`
              }
            />
            <Fact name="Input" value={list(architecture.input_modalities)} />
            <Fact name="Output" value={list(architecture.output_modalities)} />
            <Fact name="Capabilities" value={list(model.capabilities.map(capabilityText))} />
            <Fact name="Parameters" value={list(model.supported_parameters)} />
            <Fact
              name="Released"
              value={
                model.created === 0
                  ? null
                  : date(new Date(model.created * MS_PER_SECOND).toISOString())
              }
            />
          </dl>
        </Panel>
        <Panel title="Prices" aside={<span class="quiet">Excluding the platform fee</span>}>
          {isFree(model) ? <p class="quiet">Free</p> : <Prices pricing={model.pricing} />}
          {long !== undefined && (
            <>
              <h3 class="under">Prompts of more than {integer(long.above_tokens)} tokens</h3>
              <Prices pricing={long} />
            </>
          )}
          {images !== undefined && (
            <>
              <h3 class="under">By size and quality</h3>
              <dl class="facts">
                {images.map(({ size, quality, image, max_tokens: tokens }) => (
                  <Fact
                    key={`${size} ${quality}`}
                    name={[size, quality].filter(Boolean).join(", ") || "Any"}
                    value={
                      image === undefined
                        ? tokens === undefined
                          ? null
                          : `At most ${integer(tokens)} tokens`
                        : `${usdExact(Number(image))} / image`
                    }
                  />
                ))}
              </dl>
            </>
          )}
        </Panel>
      </div>
      <Endpoints model={model} />
    </>
  );
}

/** Formats a capability such as "json_mode" as "JSON mode". */
const capabilityText = (name: string) => titled(name).replace(/^Json/, "JSON");

function Prices({ pricing }: { readonly pricing: Pricing }) {
  return (
    <dl class="facts">
      {pricesOf(pricing).map((price) => (
        <Fact
          key={price.kind}
          name={price.label}
          value={`${usdExact(price.amount)} / ${price.unit}`}
        />
      ))}
    </dl>
  );
}

/**
 * The providers of a model. Only operators see provider health, so the table shows the results of the
 * organization's own requests.
 */
function Endpoints({ model }: { readonly model: ModelDetail }) {
  const from = new Date(Date.now() - (DAYS - 1) * DAY_MS).toISOString().slice(0, 10);
  const usageQuery = new URLSearchParams({
    model: model.id,
    group_by: "provider",
    start_date: from,
  });
  const usage = useResource<{ data: UsageRow[] }>(`v1/usage?${usageQuery}&limit=1000`, true);
  const served = new Map<string, RequestCounts>();
  for (const { provider, requests, errors } of usage.data?.data ?? []) {
    const counts = served.get(provider ?? "") ?? { requests: 0, errors: 0 };
    served.set(provider ?? "", {
      requests: counts.requests + requests,
      errors: counts.errors + errors,
    });
  }
  return (
    <Panel title="Providers" aside={<span class="quiet">In routing order</span>} isFlush>
      <Table
        label="Providers of the model"
        columns={columns(served)}
        rows={model.endpoints}
        keyOf={({ provider, model: name }) => `${provider} ${name}`}
        empty={<Empty title="No providers" />}
      />
    </Panel>
  );
}

function columns(served: ReadonlyMap<string, RequestCounts>): Column<Endpoint>[] {
  return [
    {
      title: "Provider",
      cell: ({ provider, model }) => (
        <span>
          <span class="strong">{provider}</span>
          <span class="sub code">{model}</span>
        </span>
      ),
    },
    {
      title: "Context",
      isNumber: true,
      cell: ({ context_length: tokens }) => integer(tokens),
    },
    {
      title: "Max output",
      isNumber: true,
      isSecondary: true,
      cell: ({ max_output_tokens: tokens }) => (tokens === 0 ? "—" : integer(tokens)),
    },
    ...PRICE_COLUMNS,
    {
      title: `Requests, ${DAYS} days`,
      isNumber: true,
      cell: ({ provider }) => integer(served.get(provider)?.requests ?? 0),
    },
    {
      title: "Errors",
      isNumber: true,
      cell: ({ provider }) => {
        const { requests, errors } = served.get(provider) ?? NO_REQUESTS;
        if (requests === 0) return <span class="quiet">—</span>;
        const share = errors / requests;
        return share < HIGH_ERROR_SHARE ? (
          percent(share)
        ) : (
          <Badge tone="bad">{percent(share)}</Badge>
        );
      },
    },
  ];
}
