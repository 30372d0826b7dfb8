import { Button, Choice, Link } from "../../components/controls.tsx";
import { Fact, Meter, Notice, PageHead, Panel, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { integer, usd, usdExact } from "../../format.ts";
import { useResource } from "../../resource.ts";
import { changeQuery, query } from "../../router.ts";
import { useKeyNames } from "../key-names.ts";
import {
  createdColumn,
  downloadFile,
  metadataText,
  NoObject,
  ObjectTable,
  StatusBadge,
  useConfirmedCall,
  useObjects,
} from "./object-list.tsx";

interface Batch {
  readonly id: string;
  readonly endpoint: string;
  readonly status: string;
  readonly models: readonly string[] | null;
  readonly total: number;
  readonly completed: number;
  readonly failed: number;
  /** Null if it is not known. */
  readonly cost_usd: number | null;
  readonly key_id: string;
  readonly input_file_id: string;
  readonly output_file_id: string | null;
  readonly error_file_id: string | null;
  readonly faults:
    | readonly { readonly code: string; readonly message: string; readonly line: number | null }[]
    | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly created_at: string;
  readonly ended_at: string | null;
  readonly expires_at: string;
}

interface FailedLine {
  readonly custom_id: string | null;
  readonly status: number | null;
  readonly code: string | null;
  readonly message: string | null;
  readonly request_id: string | null;
}

interface FailedLines {
  readonly errors: readonly { readonly code: string; readonly count: number }[];
  readonly counted: number;
  readonly is_deleted: boolean;
  readonly data: readonly FailedLine[];
}

const CANCELLABLE = ["validating", "in_progress"];
const linesText = (count: number) => (count === 1 ? "1 line" : `${integer(count)} lines`);

/** The list of batches, or one batch. */
export function BatchesPage() {
  const id = query.value.get("id");
  return id === null ? <BatchList /> : <BatchDetail id={id} />;
}

function Progress({ batch }: { readonly batch: Batch }) {
  const { id, total, completed, failed } = batch;
  if (total === 0) return <span class="quiet">—</span>;
  return (
    <span>
      <Meter
        label={`Progress of ${id}`}
        share={(completed + failed) / total}
        text={`${integer(completed)} of ${integer(total)}`}
        tone={failed === 0 ? "good" : completed === 0 ? "bad" : "warn"}
      />
      {failed > 0 && <span class="sub bad">{integer(failed)} failed</span>}
    </span>
  );
}

const cost = ({ cost_usd: amount }: Batch) => (amount === null ? "—" : usd(amount));

function BatchList() {
  const state = query.value.get("state") ?? "";
  const batches = useObjects<Batch>("batches", { state });
  const keyName = useKeyNames();
  const columns: Column<Batch>[] = [
    createdColumn("batches"),
    { title: "Status", isCorner: true, cell: ({ status }) => <StatusBadge status={status} /> },
    { title: "Lines", cell: (batch) => <Progress batch={batch} /> },
    {
      title: "Endpoint",
      isSecondary: true,
      cell: ({ endpoint, models }) => (
        <span>
          {endpoint}
          {models && <span class="sub">{models.slice(0, 3).join(", ")}</span>}
        </span>
      ),
    },
    { title: "Key", isSecondary: true, cell: ({ key_id: id }) => keyName(id) },
    { title: "Cost", isNumber: true, cell: cost },
  ];
  return (
    <>
      <PageHead title="Batches" />
      <div class="filters">
        <Choice
          label="State"
          value={state}
          options={[
            ["", "All"],
            ["running", "Running"],
            ["failing", "With failures"],
            ["ended", "Ended"],
          ]}
          onChange={(value) => changeQuery({ state: value })}
        />
      </div>
      <ObjectTable
        label="Batches"
        columns={columns}
        objects={batches}
        empty={
          <NoObject
            title="No batches yet"
            isFiltered={state !== ""}
            example={[
              "v1/batches",
              `-H "Content-Type: application/json" \\\n  -d '{"input_file_id": "file_…", "endpoint": "/v1/chat/completions", "completion_window": "24h"}'`,
            ]}
          >
            A batch runs the requests of a file within 24 hours, often at a lower price.
          </NoObject>
        }
      />
    </>
  );
}

function BatchDetail({ id }: { readonly id: string }) {
  const path = `objects/batches/${encodeURIComponent(id)}`;
  const { data: batch, error, reload } = useResource<Batch>(path, true);
  const { ask, dialog } = useConfirmedCall();
  const cancel = () =>
    ask({
      ...{ title: "Cancel this batch?", action: "Cancel batch", done: "The batch is cancelled." },
      ...{ method: "POST", path: `${path}/cancel`, onDone: reload },
      children: "Answered lines are kept and charged. The other lines are not called.",
    });
  return (
    <>
      <p class="back">
        <Link page="batches">← Batches</Link>
      </p>
      <PageHead title="Batch">
        {batch && CANCELLABLE.includes(batch.status) && (
          <Button variant="danger" needs="files:write" onClick={cancel}>
            Cancel batch
          </Button>
        )}
      </PageHead>
      {error !== undefined && <Notice tone="bad">{error}</Notice>}
      {batch !== undefined && (
        <>
          <div class="columns">
            <Outcome batch={batch} />
            <BatchFiles batch={batch} />
          </div>
          {batch.faults && <Faults faults={batch.faults} />}
          {batch.failed > 0 && <Failures key={batch.failed} path={path} batch={batch} />}
        </>
      )}
      {dialog}
    </>
  );
}

interface PartProps {
  readonly batch: Batch;
}

function Outcome({ batch }: PartProps) {
  const keyName = useKeyNames();
  return (
    <Panel title="Outcome" aside={<StatusBadge status={batch.status} />}>
      <dl class="facts">
        <Fact name="Lines" value={<Progress batch={batch} />} />
        <Fact name="Cost" value={batch.cost_usd === null ? "—" : usdExact(batch.cost_usd)} />
        <Fact name="Endpoint" value={batch.endpoint} />
        <Fact name="Models" value={batch.models?.join(", ") ?? null} />
        <Fact name="Key" value={keyName(batch.key_id)} />
        <Fact name="Created" value={<Time iso={batch.created_at} form="exact" />} />
        {batch.ended_at === null ? (
          <Fact name="Expires" value={<Time iso={batch.expires_at} />} />
        ) : (
          <Fact name="Ended" value={<Time iso={batch.ended_at} form="exact" />} />
        )}
        <Fact name="Id" value={<span class="code">{batch.id}</span>} />
        <Fact name="Metadata" value={metadataText(batch.metadata) ?? null} />
      </dl>
    </Panel>
  );
}

function BatchFiles({ batch }: PartProps) {
  const files = [
    ["Input", batch.input_file_id],
    ["Output", batch.output_file_id],
    ["Errors", batch.error_file_id],
  ] as const;
  return (
    <Panel title="Files">
      <dl class="facts">
        {files.map(([name, id]) => (
          <Fact
            key={name}
            name={name}
            value={
              id === null ? (
                <span class="quiet">None</span>
              ) : (
                <Button
                  needs="files:read"
                  label={`Download ${name.toLowerCase()} file`}
                  onClick={() => void downloadFile(id)}
                >
                  Download
                </Button>
              )
            }
          />
        ))}
      </dl>
      <p class="quiet under">Output and error files exist when the batch has ended.</p>
    </Panel>
  );
}

function Faults({ faults }: { readonly faults: NonNullable<Batch["faults"]> }) {
  return (
    <Panel title="Errors of the input" isFlush>
      <Table
        label="Errors of the input"
        columns={[
          { title: "Line", isNumber: true, cell: ({ line }) => line ?? "—" },
          { title: "Error", cell: ({ code }) => <span class="code">{code}</span> },
          { title: "Message", cell: ({ message }) => message },
        ]}
        rows={faults.map((fault, position) => ({ ...fault, position }))}
        keyOf={({ position }) => String(position)}
        empty={<p class="empty">The batch has no errors.</p>}
      />
    </Panel>
  );
}

const LINE_COLUMNS: readonly Column<FailedLine & { readonly position: number }>[] = [
  {
    title: "Line",
    cell: ({ custom_id: id, request_id: requestId }) =>
      requestId === null ? (
        (id ?? "—")
      ) : (
        <Link page="requests" query={{ id: requestId }}>
          {id ?? requestId}
        </Link>
      ),
  },
  { title: "Status", isCorner: true, cell: ({ status }) => status ?? "Not called" },
  { title: "Error", cell: ({ code }) => <span class="code">{code ?? "—"}</span> },
  { title: "Message", cell: ({ message }) => message ?? "—" },
];

/** The lines that failed, by error and in their order. */
function Failures({ path, batch }: PartProps & { readonly path: string }) {
  const { data, error } = useResource<FailedLines>(`${path}/failed_lines`);
  const { failed, total } = batch;
  return (
    <Panel title={`${integer(failed)} of ${linesText(total)} failed`} isFlush>
      {data?.is_deleted && (
        <p class="empty">The error file was deleted, so the failed lines are no longer known.</p>
      )}
      {data && data.errors.length > 0 && (
        <dl class="facts padded">
          {data.errors.map(({ code, count }) => (
            <Fact key={code} name={linesText(count)} value={<span class="code">{code}</span>} />
          ))}
        </dl>
      )}
      {!data?.is_deleted && (
        <Table
          label="Failed lines"
          columns={LINE_COLUMNS}
          rows={data?.data.map((line, position) => ({ ...line, position }))}
          error={error}
          keyOf={({ position }) => String(position)}
          empty={<p class="empty">The failed lines are not written yet.</p>}
        />
      )}
      {data && data.data.length < failed && !data.is_deleted && (
        <p class="quiet padded">
          The first {linesText(data.data.length)}. The error file has all of them.
        </p>
      )}
    </Panel>
  );
}
