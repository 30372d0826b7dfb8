import type { ComponentType } from "preact";
import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Button } from "../../components/controls.tsx";
import { Confirm, toast } from "../../components/dialog.tsx";
import { Empty, Panel, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { useResource } from "../../resource.ts";

export interface Definition {
  readonly id: string;
  readonly name: string;
  readonly updated_at: string;
}

export interface EditorProps<Kind extends Definition> {
  /** The definition to edit. Undefined for a new one. */
  readonly edited: Kind | undefined;
  onChanged(): void;
  onClose(): void;
}

interface DefinitionsProps<Kind extends Definition> {
  /** Name of the kind. Its plural is the API path. */
  readonly noun: "preset" | "guardrail";
  readonly title: string;
  readonly lead: string;
  readonly emptyText: string;
  readonly deletedText: string;
  /** Columns between the name and the time of the last change. */
  readonly columns: readonly Column<Kind>[];
  readonly Editor: ComponentType<EditorProps<Kind>>;
}

/** The list of definitions, with actions to create, edit and delete them. */
export function DefinitionsPanel<Kind extends Definition>({
  noun,
  title,
  lead,
  emptyText,
  deletedText,
  columns,
  Editor,
}: DefinitionsProps<Kind>) {
  const [edited, setEdited] = useState<Kind | "new">();
  const [deleted, setDeleted] = useState<Kind>();
  const { data, error, reload } = useResource<{ data: Kind[] }>(`v1/${noun}s`);
  const all: Column<Kind>[] = [
    { title: "Name", cell: ({ name }) => <span class="strong">{name}</span> },
    ...columns,
    {
      title: "Updated",
      isSecondary: true,
      cell: ({ updated_at: at }) => <Time iso={at} />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (definition) => (
        <>
          <Button
            needs={`${noun}s:manage`}
            variant="quiet"
            label={`Edit ${definition.name}`}
            onClick={() => setEdited(definition)}
          >
            Edit
          </Button>
          <Button
            needs={`${noun}s:manage`}
            variant="quiet"
            label={`Delete ${definition.name}`}
            onClick={() => setDeleted(definition)}
          >
            Delete
          </Button>
        </>
      ),
    },
  ];
  return (
    <Panel
      title={title}
      aside={
        <Button needs={`${noun}s:manage`} variant="primary" onClick={() => setEdited("new")}>
          Create {noun}
        </Button>
      }
      isFlush
    >
      <p class="panel-lead">{lead}</p>
      <Table
        label={title}
        columns={all}
        rows={data?.data}
        error={error}
        keyOf={({ id }) => id}
        empty={
          <Empty title={`No ${noun}s yet`}>
            <p>{emptyText}</p>
            <Button needs={`${noun}s:manage`} onClick={() => setEdited("new")}>
              Create your first {noun}
            </Button>
          </Empty>
        }
      />
      {edited !== undefined && (
        <Editor
          edited={edited === "new" ? undefined : edited}
          onChanged={reload}
          onClose={() => setEdited(undefined)}
        />
      )}
      {deleted !== undefined && (
        <Confirm
          title={`Delete this ${noun}?`}
          action={`Delete ${noun}`}
          onClose={() => setDeleted(undefined)}
          onConfirm={async () => {
            await call("DELETE", `v1/${noun}s/${deleted.id}`);
            toast(`Deleted ${deleted.name}.`);
            setDeleted(undefined);
            reload();
          }}
        >
          <b>{deleted.name}</b> is deleted. {deletedText}
        </Confirm>
      )}
    </Panel>
  );
}
