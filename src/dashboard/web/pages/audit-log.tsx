import { useState } from "preact/hooks";
import { session } from "../api.ts";
import { Button, Field } from "../components/controls.tsx";
import { Dialog } from "../components/dialog.tsx";
import { Empty, PageHead, Panel, ShortId, Time } from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { useResource } from "../resource.ts";
import { changeQuery, query } from "../router.ts";

type Fields = Readonly<Record<string, unknown>>;

interface AuditEntry {
  readonly id: string;
  readonly organization_id: string | null;
  readonly action: string;
  readonly object: { readonly type: string; readonly id: string | null };
  readonly actor: {
    readonly kind: string;
    readonly id: string | null;
    readonly name: string | null;
    readonly via: string | null;
    readonly address: string | null;
    readonly user_agent: string | null;
    readonly request_id: string | null;
  };
  readonly before: Fields | null;
  readonly after: Fields | null;
  readonly created_at: string;
}

interface AuditPage {
  readonly data: readonly AuditEntry[];
  readonly has_more: boolean;
  readonly last_id: string | null;
}

const PAGE_SIZE = 50;
const FILTERS = {
  action: "Action",
  object_id: "Object",
  actor_id: "Actor",
  start_date: "From",
  end_date: "To",
} as const;
const OPERATOR_FILTERS = { organization_id: "Organization", ...FILTERS } as const;
const HINTS: Readonly<Record<string, string>> = {
  action: "key.created",
};

/** Administrative actions: actor, action, and changed fields. */
export function AuditLogPage() {
  const [cursors, setCursors] = useState<readonly string[]>([]);
  const [shownEntry, setShownEntry] = useState<AuditEntry>();
  const isOperator = session.value?.kind === "operator";
  const filters = Object.entries(isOperator ? OPERATOR_FILTERS : FILTERS);
  const urlQuery = query.value;
  const parameters = new URLSearchParams({ limit: String(PAGE_SIZE) });
  for (const [name] of filters) if (urlQuery.get(name)) parameters.set(name, urlQuery.get(name)!);
  if (cursors.length > 0) parameters.set("after", cursors.at(-1)!);
  const path = isOperator ? "v1/admin/audit_log" : "v1/audit_log";
  const { data, error } = useResource<AuditPage>(`${path}?${parameters}`);
  const change = (changes: Record<string, string | undefined>) => {
    setCursors([]);
    changeQuery(changes);
  };
  const isFiltered = filters.some(([name]) => urlQuery.get(name));
  const clear = () => change(Object.fromEntries(filters.map(([name]) => [name, undefined])));
  return (
    <>
      <PageHead title="Audit log">
        {isFiltered && <Button onClick={clear}>Clear filters</Button>}
      </PageHead>
      <div class="filters">
        {filters.map(([name, label]) => (
          <Field
            key={name}
            label={label}
            value={urlQuery.get(name) ?? ""}
            type={name.endsWith("_date") ? "date" : "text"}
            onInput={(value) => change({ [name]: value === "" ? undefined : value })}
            placeholder={HINTS[name] ?? "Any id"}
          />
        ))}
      </div>
      <Panel isFlush>
        <Table
          label="Audit log"
          columns={columns(isOperator, setShownEntry)}
          rows={data?.data}
          error={error}
          keyOf={(entry) => entry.id}
          empty={
            <Empty title={isFiltered ? "No matching entries" : "No entries yet"}>
              <p>
                {isFiltered ? "Clear the filters to see other entries." : "Changes appear here."}
              </p>
            </Empty>
          }
        />
        {data !== undefined && (
          <Pager
            first={cursors.length * PAGE_SIZE}
            count={data.data.length}
            hasMore={data.has_more}
            onPrevious={cursors.length === 0 ? undefined : () => setCursors(cursors.slice(0, -1))}
            onNext={() => setCursors([...cursors, data.last_id!])}
          />
        )}
      </Panel>
      {shownEntry !== undefined && (
        <EntryDialog entry={shownEntry} onClose={() => setShownEntry(undefined)} />
      )}
    </>
  );
}

function columns(isOperator: boolean, show: (entry: AuditEntry) => void): Column<AuditEntry>[] {
  const organization: Column<AuditEntry> = {
    title: "Organization",
    isSecondary: true,
    cell: ({ organization_id: id }) =>
      id === null ? <span class="quiet">The gateway</span> : <ShortId id={id} />,
  };
  return [
    { title: "Time", cell: ({ created_at: at }) => <Time iso={at} form="exact" /> },
    { title: "Action", cell: ({ action }) => action },
    { title: "Actor", cell: ({ actor }) => <Actor actor={actor} /> },
    ...(isOperator ? [organization] : []),
    {
      title: "Object",
      isSecondary: true,
      cell: ({ object }) => (object.id === null ? object.type : <ShortId id={object.id} />),
    },
    {
      title: "Details",
      isAction: true,
      cell: (entry) => (
        <Button variant="quiet" label={`Details of ${entry.action}`} onClick={() => show(entry)}>
          Details
        </Button>
      ),
    },
  ];
}

const KINDS: Readonly<Record<string, string>> = {
  management_key: "Management key",
  secret_key: "Secret key",
  operator: "Operator",
  subject: "Single sign-on",
  cli: "Command line",
  system: "System",
};

function Actor({ actor: { kind, name, id } }: { readonly actor: AuditEntry["actor"] }) {
  const label = KINDS[kind] ?? kind;
  if (id === null) return label;
  return (
    <span>
      {name ?? id}
      <span class="sub">{label}</span>
    </span>
  );
}

interface ChangedField {
  readonly name: string;
  readonly before: unknown;
  readonly after: unknown;
}

function EntryDialog({ entry, onClose }: { readonly entry: AuditEntry; onClose(): void }) {
  const { actor, object, before, after } = entry;
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])].sort();
  const fields = names.map((name) => ({ name, before: before?.[name], after: after?.[name] }));
  const facts: readonly (readonly [string, string | null])[] = [
    ["Entry", entry.id],
    ["Object", object.id === null ? object.type : `${object.type} ${object.id}`],
    ["Organization", entry.organization_id],
    ["Actor", [KINDS[actor.kind] ?? actor.kind, actor.name, actor.id].filter(Boolean).join(", ")],
    ["Via", actor.via],
    ["Address", actor.address],
    ["User agent", actor.user_agent],
    ["Request", actor.request_id],
  ];
  return (
    <Dialog title={entry.action} onClose={onClose}>
      {fields.length > 0 && (
        <Table<ChangedField>
          label="Changed fields"
          columns={[
            { title: "Field", cell: ({ name }) => name },
            { title: "Before", cell: ({ before: value }) => <Value value={value} /> },
            { title: "After", cell: ({ after: value }) => <Value value={value} /> },
          ]}
          rows={fields}
          keyOf={({ name }) => name}
          empty={null}
        />
      )}
      <dl class="facts">
        <dt>Time</dt>
        <dd>
          <Time iso={entry.created_at} form="exact" />
        </dd>
        {facts.map(
          ([name, value]) =>
            value !== null && [<dt key={name}>{name}</dt>, <dd key={`${name} value`}>{value}</dd>],
        )}
      </dl>
    </Dialog>
  );
}

function Value({ value }: { readonly value: unknown }) {
  if (value === undefined || value === null) return <span class="quiet">—</span>;
  return <>{typeof value === "string" ? value : JSON.stringify(value)}</>;
}
