import { useState } from "preact/hooks";
import { Area, Button, Field } from "../components/controls.tsx";
import { Dialog, Form } from "../components/dialog.tsx";
import { Empty, Meter, PageHead, Panel } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { percent } from "../format.ts";
import { useResource } from "../resource.ts";
import {
  type ConfigurationEntry,
  DeleteDialog,
  SOURCES,
  STORED_ACTIONS,
  saveEntry,
} from "./configuration-entry.tsx";
import { HistoryDialog } from "./configuration-history.tsx";

interface WeightedModel {
  readonly id: string;
  readonly weight?: number;
}

/** An alias in the answer of GET /v1/admin/aliases. */
export interface Alias extends ConfigurationEntry {
  readonly models: readonly WeightedModel[];
  readonly organization_id?: string;
}

type AliasAction =
  | { readonly kind: "add" }
  | { readonly kind: "edit" | "history" | "delete"; readonly alias: Alias };

const PATH = "v1/admin/aliases";

/** Names for several models, with shares of the first choice. For operators. */
export function AliasesPage() {
  const [action, setAction] = useState<AliasAction>();
  const { data, error, reload } = useResource<{ data: Alias[] }>(PATH);
  return (
    <>
      <PageHead title="Aliases">
        <Button onClick={reload}>Refresh</Button>
        <Button needs="operator" variant="primary" onClick={() => setAction({ kind: "add" })}>
          Add alias
        </Button>
      </PageHead>
      <Panel isFlush>
        <Table
          label="Aliases"
          columns={columns(setAction)}
          rows={data?.data}
          error={error}
          keyOf={({ id, organization_id: organization }) => `${organization} ${id}`}
          empty={
            <Empty title="No aliases yet">
              <p>
                An alias is a name for one or more models. Weights send a share of the requests to a
                new model.
              </p>
              <Button needs="operator" onClick={() => setAction({ kind: "add" })}>
                Add your first alias
              </Button>
            </Empty>
          }
        />
      </Panel>
      <ActionDialog action={action} onChanged={reload} onClose={() => setAction(undefined)} />
    </>
  );
}

function columns(onAction: (action: AliasAction) => void): Column<Alias>[] {
  return [
    {
      title: "Alias",
      cell: ({ id, source, organization_id: organization }) => (
        <span>
          <span class="strong">{id}</span>
          {organization !== undefined && <span class="sub code">{organization}</span>}
          {source !== "stored" && <span class="sub">{SOURCES[source]}</span>}
        </span>
      ),
    },
    { title: "Models", cell: ({ models }) => <Shares models={models} /> },
    {
      title: "Actions",
      isAction: true,
      cell: (alias) =>
        alias.source === "stored" && (
          <span class="actions">
            {STORED_ACTIONS.map(([kind, text]) => (
              <Button
                needs="operator"
                key={kind}
                variant="quiet"
                label={`${text} ${alias.id}`}
                onClick={() => onAction({ kind, alias })}
              >
                {text}
              </Button>
            ))}
          </span>
        ),
    },
  ];
}

/** The models of an alias, each with its share of first choices as a bar. */
function Shares({ models }: Pick<Alias, "models">) {
  const isWeighted = models.some(({ weight }) => weight !== undefined);
  const total = models.reduce((sum, { weight = 1 }) => sum + weight, 0);
  return (
    <ul class="plain">
      {models.map(({ id, weight = 1 }, at) => {
        const share = isWeighted ? weight / total : at === 0 ? 1 : 0;
        return (
          <li key={id}>
            <Meter
              label={`Share of ${id}`}
              share={share}
              tone="good"
              text={isWeighted ? `${id} ${percent(share)}` : id}
            />
          </li>
        );
      })}
    </ul>
  );
}

interface ActionDialogProps {
  readonly action: AliasAction | undefined;
  onChanged(): void;
  onClose(): void;
}

function ActionDialog({ action, onChanged, onClose }: ActionDialogProps) {
  if (action === undefined) return null;
  if (action.kind === "add") return <AliasDialog edited={undefined} {...{ onChanged, onClose }} />;
  const { kind, alias } = action;
  if (kind === "edit") return <AliasDialog edited={alias} {...{ onChanged, onClose }} />;
  if (kind === "history") {
    return <HistoryDialog path={PATH} kind="alias" entry={alias} {...{ onChanged, onClose }} />;
  }
  return (
    <DeleteDialog path={PATH} kind="alias" entry={alias} onDeleted={onChanged} onClose={onClose}>
      Requests for <b>{alias.id}</b> are then rejected with status 404.
    </DeleteDialog>
  );
}

interface AliasDialogProps {
  readonly edited: Alias | undefined;
  onChanged(): void;
  onClose(): void;
}

function AliasDialog({ edited, onChanged, onClose }: AliasDialogProps) {
  const [id, setId] = useState(edited?.id ?? "");
  const [text, setText] = useState(edited === undefined ? "" : linesOf(edited.models));
  const [organization, setOrganization] = useState(edited?.organization_id ?? "");
  const save = async () => {
    const models = modelsIn(text);
    const isNewForOne = edited === undefined && organization !== "";
    const entry = { id, models, ...(isNewForOne && { organization_id: organization }) };
    await saveEntry(PATH, edited, entry);
    onClose();
    onChanged();
  };
  return (
    <Dialog title={edited === undefined ? "Add an alias" : `Edit ${edited.id}`} onClose={onClose}>
      <Form submit={edited === undefined ? "Add" : "Save"} onCancel={onClose} onSubmit={save}>
        {edited === undefined && (
          <Field
            label="Alias"
            param="id"
            value={id}
            onInput={setId}
            isRequired
            placeholder="fast"
          />
        )}
        <Area
          label="Models"
          param="models"
          rows={4}
          value={text}
          onInput={setText}
          placeholder={"openai/gpt-5-mini 95\nopenai/gpt-5-nano 5"}
          hint="One model per line, in the order in which they are tried. A number after the model is its weight."
        />
        {edited === undefined && (
          <Field
            label="Organization"
            param="organization_id"
            value={organization}
            onInput={setOrganization}
            placeholder="All organizations"
            hint="The id of the only organization that can use the alias"
          />
        )}
      </Form>
    </Dialog>
  );
}

function linesOf(models: readonly WeightedModel[]): string {
  return models.map(({ id, weight }) => (weight === undefined ? id : `${id} ${weight}`)).join("\n");
}

function modelsIn(text: string): WeightedModel[] {
  const lines = text.split("\n").map((line) => line.trim());
  return lines
    .filter((line) => line !== "")
    .map((line) => {
      const [id, weight] = line.split(/\s+/);
      return { id: id!, ...(weight !== undefined && { weight: Number(weight) }) };
    });
}
