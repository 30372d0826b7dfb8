import type { ComponentChildren } from "preact";
import { Button, Link } from "../components/controls.tsx";
import { Empty, PageHead, Panel } from "../components/display.tsx";
import { date, integer, usdExact } from "../format.ts";
import { FEATURES, type ListedModel, useOf, useTitle } from "../models/catalogue.ts";
import { PRICE_KINDS, pricesOf } from "../models/prices.tsx";
import { query } from "../router.ts";

interface ModelComparisonProps {
  readonly models: readonly ListedModel[];
  readonly isLoading: boolean;
  onRemove(id: string): void;
}

const PLAYGROUND_SIDES = 2;
const MS_PER_SECOND = 1_000;
const NONE = <span class="quiet">—</span>;

/** A comparison of models: one column per model, one row per property. */
export function ModelComparison({ models, isLoading, onRemove }: ModelComparisonProps) {
  const chats = models.filter((model) => useOf(model) === "chat").slice(0, PLAYGROUND_SIDES);
  const list = { ...Object.fromEntries(query.value), view: undefined };
  return (
    <>
      <p class="back">
        <Link page="models" query={list}>
          ← Models
        </Link>
      </p>
      <PageHead title="Compare models">
        {chats.length > 0 && (
          <Link
            page="playground"
            query={{ model: chats[0]!.id, with: chats[1]?.id }}
            class="button primary"
          >
            Try in the playground
          </Link>
        )}
      </PageHead>
      <Panel isFlush>
        {models.length === 0 && !isLoading ? (
          <Empty title="No models selected">
            <p>
              Select up to four models in the <Link page="models">list</Link>.
            </p>
          </Empty>
        ) : (
          <section class="table-room" aria-label="Comparison">
            <Comparison models={models} onRemove={onRemove} />
          </section>
        )}
      </Panel>
    </>
  );
}

function Comparison({ models, onRemove }: Omit<ModelComparisonProps, "isLoading">) {
  const prices = models.map(({ pricing }) => pricesOf(pricing));
  const all = prices.flat();
  const kinds = PRICE_KINDS.flatMap((kind) => all.find((price) => price.kind === kind) ?? []);
  const row = (title: string, cell: (model: ListedModel, index: number) => ComponentChildren) => (
    <tr key={title}>
      <th scope="row">{title}</th>
      {models.map((model, index) => (
        <td key={model.id}>{cell(model, index)}</td>
      ))}
    </tr>
  );
  return (
    <table class="comparison">
      <thead>
        <tr>
          <td />
          {models.map(({ id, name }) => (
            <th key={id} scope="col">
              <Link page="models" query={{ ...Object.fromEntries(query.value), id }}>
                {name}
              </Link>
              <span class="sub code">{id}</span>
              <Button variant="quiet" label={`Remove ${name}`} onClick={() => onRemove(id)}>
                Remove
              </Button>
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {row("Use", useTitle)}
        {row("Provider", ({ provider }) => provider)}
        {row("Context (tokens)", ({ context_length: tokens }) => integer(tokens))}
        {row("Max output (tokens)", ({ top_provider: { max_completion_tokens: tokens } }) =>
          tokens === null ? NONE : integer(tokens),
        )}
        {row("Input", ({ architecture }) => architecture.input_modalities.join(", "))}
        {row("Output", ({ architecture }) => architecture.output_modalities.join(", "))}
        {FEATURES.slice(0, 4).map((feature) =>
          row(feature.title, (model) =>
            feature.has(model) ? "Yes" : <span class="quiet">No</span>,
          ),
        )}
        {kinds.map(({ kind, label, unit }) =>
          row(`${label}, per ${unit}`, (_, index) => {
            const price = prices[index]!.find((candidate) => candidate.kind === kind);
            return price === undefined ? NONE : usdExact(price.amount);
          }),
        )}
        {row("Released", ({ created }) =>
          created === 0 ? NONE : date(new Date(created * MS_PER_SECOND).toISOString()),
        )}
      </tbody>
    </table>
  );
}
