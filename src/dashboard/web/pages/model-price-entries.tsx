import { useState } from "preact/hooks";
import { Button, Choice, Field } from "../components/controls.tsx";
import { Dialog, Form } from "../components/dialog.tsx";
import { Badge, Empty, Panel, Time } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { type ConfiguredModel, effectiveOf } from "../models/configured-model.ts";
import {
  membersOf,
  PriceFields,
  type PriceMembers,
  type PriceTexts,
  priceLines,
} from "../models/price-settings.tsx";
import { useResource } from "../resource.ts";
import {
  type ConfigurationEntry,
  DeleteDialog,
  SOURCES,
  saveEntry,
} from "./configuration-entry.tsx";

/** A price in the answer of GET /v1/admin/prices. */
interface PriceEntry extends ConfigurationEntry {
  readonly model: string;
  /** The provider whose endpoint has the prices. Absent: all. */
  readonly provider?: string;
  readonly pricing: PriceMembers;
  /** The time from which the prices apply. Absent: always. */
  readonly valid_from?: string;
}

const PATH = "v1/admin/prices";

type Action = { readonly kind: "add" } | { readonly kind: "delete"; readonly entry: PriceEntry };

interface PriceEntriesProps {
  readonly model: ConfiguredModel;
  onChanged(): void;
}

/** The entries that replace prices of a model from a time on. */
export function PriceEntries({ model, onChanged }: PriceEntriesProps) {
  const [action, setAction] = useState<Action>();
  const { data, error, reload } = useResource<{ data: PriceEntry[] }>(PATH);
  const entries = data?.data.filter((entry) => entry.model === model.id);
  const changed = () => {
    reload();
    onChanged();
  };
  const onClose = () => setAction(undefined);
  return (
    <Panel
      title="Price entries"
      aside={
        <Button needs="operator" variant="primary" onClick={() => setAction({ kind: "add" })}>
          Set price
        </Button>
      }
      isFlush
    >
      <Table
        label="Price entries"
        columns={columns((entry) => setAction({ kind: "delete", entry }))}
        rows={entries}
        error={error}
        keyOf={({ id }) => id}
        empty={
          <Empty title="No price entries">
            <p>A price entry replaces prices from a day on, at one or all providers.</p>
          </Empty>
        }
      />
      {action?.kind === "add" && <PriceDialog {...{ model, onClose }} onChanged={changed} />}
      {action?.kind === "delete" && (
        <DeleteDialog
          path={PATH}
          kind="price entry"
          entry={action.entry}
          onDeleted={changed}
          onClose={onClose}
        >
          Requests then have the price that applies without <b>{action.entry.id}</b>.
        </DeleteDialog>
      )}
    </Panel>
  );
}

function columns(onDelete: (entry: PriceEntry) => void): Column<PriceEntry>[] {
  return [
    {
      title: "Entry",
      cell: ({ id, source }) => (
        <span>
          <span class="strong">{id}</span>
          {source !== "stored" && <span class="sub">{SOURCES[source]}</span>}
        </span>
      ),
    },
    { title: "Provider", cell: ({ provider }) => provider ?? "All" },
    {
      title: "Prices",
      cell: ({ pricing }) => (
        <span class="stacked">
          {priceLines(pricing).map((line) => (
            <span key={line}>{line}</span>
          ))}
        </span>
      ),
    },
    {
      title: "Valid from",
      cell: ({ valid_from: from }) => (
        <span>
          <Time iso={from ?? null} form="date" otherwise="Always" />
          {from !== undefined && Date.parse(from) > Date.now() && (
            <>
              {" "}
              <Badge>Planned</Badge>
            </>
          )}
        </span>
      ),
    },
    {
      title: "Actions",
      isAction: true,
      cell: (entry) =>
        entry.source === "stored" && (
          <Button
            needs="operator"
            variant="quiet"
            label={`Delete ${entry.id}`}
            onClick={() => onDelete(entry)}
          >
            Delete
          </Button>
        ),
    },
  ];
}

interface PriceDialogProps extends PriceEntriesProps {
  onClose(): void;
}

function PriceDialog({ model, onChanged, onClose }: PriceDialogProps) {
  const [id, setId] = useState(() => suggestedId(model.id));
  const [provider, setProvider] = useState("");
  const [from, setFrom] = useState("");
  const [prices, setPrices] = useState<PriceTexts>({});
  const providers = new Set(effectiveOf(model).endpoints.map((endpoint) => endpoint.provider));
  const save = async () => {
    await saveEntry(PATH, undefined, {
      id,
      model: model.id,
      pricing: membersOf(prices),
      ...(provider !== "" && { provider }),
      ...(from !== "" && { valid_from: `${from}T00:00:00Z` }),
    });
    onClose();
    onChanged();
  };
  const isEmpty = Object.values(prices).every((text) => text.trim() === "");
  return (
    <Dialog title={`Set prices of ${model.id}`} onClose={onClose}>
      <Form submit="Set price" onCancel={onClose} onSubmit={save} isDisabled={isEmpty}>
        <PriceFields texts={prices} onChange={setPrices} />
        <div class="pair">
          <Choice
            label="Provider"
            param="provider"
            value={provider}
            options={[["", "All"], ...[...providers].map((name) => [name, name] as const)]}
            onChange={setProvider}
          />
          <Field
            label="Valid from"
            param="valid_from"
            type="date"
            value={from}
            onInput={setFrom}
            hint="00:00 UTC on that day. Empty: immediately"
          />
        </div>
        <Field
          label="Id"
          param="id"
          value={id}
          onInput={setId}
          isRequired
          hint="The name of the price entry"
        />
        <p class="hint">Empty prices stay as they are. Running requests keep their prices.</p>
      </Form>
    </Dialog>
  );
}

/** Returns an id that the API accepts: the model's name and the day. */
function suggestedId(modelId: string): string {
  const day = new Date().toISOString().slice(0, 10);
  const name = modelId.slice(modelId.indexOf("/") + 1).replace(/[^A-Za-z0-9._-]+/g, "-");
  return `${name.slice(0, 50)}-${day}`;
}
