import { Chart } from "../../components/chart.tsx";
import { Button, Choice, Link } from "../../components/controls.tsx";
import { Badge, Fact, Notice, PageHead, Panel, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { integer, titled, usd, usdExact } from "../../format.ts";
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

interface Job {
  readonly id: string;
  readonly model: string;
  readonly status: string;
  readonly fine_tuned_model: string | null;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly trained_tokens: number | null;
  /** Null if nothing was charged. */
  readonly cost_usd: number | null;
  readonly held_usd: number;
  readonly epochs: number;
  readonly key_id: string;
  readonly training_file: string;
  readonly validation_file: string | null;
  readonly result_file: string | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly created_at: string;
  readonly estimated_finish: string | null;
  readonly finished_at: string | null;
}

interface JobEvents {
  readonly data: readonly {
    readonly id: string;
    readonly level: string;
    readonly message: string;
    readonly created_at: string;
  }[];
  readonly curve: readonly {
    readonly step: number;
    readonly train_loss: number | null;
    readonly valid_loss: number | null;
  }[];
}

const STATUSES = ["queued", "validating_files", "running", "succeeded", "failed", "cancelled"];
const PAGE = "fine-tuning";

/** The list of fine-tuning jobs, or one job. */
export function FineTuningPage() {
  const id = query.value.get("id");
  return id === null ? <JobList /> : <JobDetail id={id} />;
}

function JobList() {
  const status = query.value.get("status") ?? "";
  const jobs = useObjects<Job>("fine_tuning_jobs", { status });
  const keyName = useKeyNames();
  const columns: Column<Job>[] = [
    createdColumn(PAGE),
    {
      title: "Status",
      isCorner: true,
      cell: (job) => (
        <span class="stacked">
          <StatusBadge status={job.status} />
          {job.error && <span class="sub">{job.error.code}</span>}
        </span>
      ),
    },
    {
      title: "Model",
      cell: (job) => (
        <span>
          {job.fine_tuned_model ?? job.model}
          {job.fine_tuned_model && <span class="sub">from {job.model}</span>}
        </span>
      ),
    },
    { title: "Key", isSecondary: true, cell: ({ key_id: id }) => keyName(id) },
    {
      title: "Trained tokens",
      isNumber: true,
      isSecondary: true,
      cell: ({ trained_tokens: tokens }) => (tokens === null ? "—" : integer(tokens)),
    },
    {
      title: "Cost",
      isNumber: true,
      cell: (job) =>
        job.held_usd > 0 ? (
          <span>
            —<span class="sub">up to {usd(job.held_usd)}</span>
          </span>
        ) : (
          usd(job.cost_usd ?? 0)
        ),
    },
  ];
  return (
    <>
      <PageHead title="Fine-tuning" />
      <div class="filters">
        <Choice
          label="Status"
          value={status}
          options={[["", "All"], ...STATUSES.map((one) => [one, titled(one)] as const)]}
          onChange={(value) => changeQuery({ status: value })}
        />
      </div>
      <ObjectTable
        label="Fine-tuning jobs"
        columns={columns}
        objects={jobs}
        empty={
          <NoObject
            title="No fine-tuning jobs yet"
            isFiltered={status !== ""}
            example={[
              "v1/fine_tuning/jobs",
              `-H "Content-Type: application/json" \\\n  -d '{"model": "…", "training_file": "file_…"}'`,
            ]}
          >
            A job trains a model with examples from a file. Your organization alone can call the
            result.
          </NoObject>
        }
      />
    </>
  );
}

function JobDetail({ id }: { readonly id: string }) {
  const path = `objects/fine_tuning_jobs/${encodeURIComponent(id)}`;
  const { data: job, error, reload } = useResource<Job>(path, true);
  const { data: events } = useResource<JobEvents>(`${path}/events`, true);
  const { ask, dialog } = useConfirmedCall();
  const cancel = () =>
    ask({
      ...{ title: "Cancel this job?", action: "Cancel job", done: "The job was cancelled." },
      ...{ method: "POST", path: `${path}/cancel`, onDone: reload },
      children: "The training stops without a model. Nothing is charged.",
    });
  return (
    <>
      <p class="back">
        <Link page={PAGE}>← Fine-tuning</Link>
      </p>
      <PageHead title="Fine-tuning job">
        {job?.finished_at === null && (
          <Button variant="danger" needs="fine_tuning" onClick={cancel}>
            Cancel job
          </Button>
        )}
      </PageHead>
      {error !== undefined && <Notice tone="bad">{error}</Notice>}
      {job !== undefined && (
        <div class="columns">
          <JobFacts job={job} />
          <Panel title="Loss">
            <Loss events={events} isRunning={job.finished_at === null} />
          </Panel>
        </div>
      )}
      {job !== undefined && <Messages events={events} />}
      {dialog}
    </>
  );
}

function JobFacts({ job }: { readonly job: Job }) {
  const keyName = useKeyNames();
  const file = (id: string | null) =>
    id && (
      <Button needs="files:read" label={`Download ${id}`} onClick={() => void downloadFile(id)}>
        Download
      </Button>
    );
  return (
    <Panel title="Outcome" aside={<StatusBadge status={job.status} />}>
      {job.error && (
        <Notice tone="bad">
          <code>{job.error.code}</code>: {job.error.message}
        </Notice>
      )}
      <dl class="facts">
        <Fact name="Base model" value={job.model} />
        <Fact
          name="Fine-tuned model"
          value={
            job.fine_tuned_model && (
              <Link page="requests" query={{ model: job.fine_tuned_model }}>
                {job.fine_tuned_model}
              </Link>
            )
          }
        />
        <Fact
          name="Cost"
          value={
            job.held_usd > 0 ? `Up to ${usdExact(job.held_usd)}, held` : usdExact(job.cost_usd ?? 0)
          }
        />
        <Fact
          name="Trained tokens"
          value={job.trained_tokens !== null && integer(job.trained_tokens)}
        />
        <Fact name="Epochs" value={integer(job.epochs)} />
        <Fact name="Key" value={keyName(job.key_id)} />
        <Fact name="Created" value={<Time iso={job.created_at} form="exact" />} />
        {job.finished_at === null ? (
          <Fact name="Estimated end" value={<Time iso={job.estimated_finish} />} />
        ) : (
          <Fact name="Ended" value={<Time iso={job.finished_at} form="exact" />} />
        )}
        <Fact name="Id" value={<span class="code">{job.id}</span>} />
        <Fact name="Training file" value={file(job.training_file)} />
        <Fact name="Validation file" value={file(job.validation_file)} />
        <Fact name="Metrics" value={file(job.result_file)} />
        <Fact name="Metadata" value={metadataText(job.metadata) ?? null} />
      </dl>
    </Panel>
  );
}

interface LossProps {
  readonly events: JobEvents | undefined;
  readonly isRunning: boolean;
}

const lossText = (loss: number) => loss.toLocaleString("en-US", { maximumSignificantDigits: 4 });

function Loss({ events, isRunning }: LossProps) {
  if (events === undefined) return null;
  const { curve } = events;
  if (curve.length === 0) {
    return (
      <p class="quiet">
        {isRunning
          ? "The curve appears when the training reports its first step."
          : "The provider reported no metrics."}
      </p>
    );
  }
  const hasValidation = curve.some(({ valid_loss: loss }) => loss !== null);
  return (
    <Chart
      label="Loss by step"
      times={curve.map(({ step }) => step)}
      formatX={(step) => `Step ${integer(step)}`}
      series={[
        { label: "Training", color: 1, values: curve.map(({ train_loss: loss }) => loss) },
        ...(hasValidation
          ? [{ label: "Validation", color: 2, values: curve.map(({ valid_loss: loss }) => loss) }]
          : []),
      ]}
      format={lossText}
    />
  );
}

const MESSAGE_COLUMNS: readonly Column<JobEvents["data"][number]>[] = [
  { title: "Time", cell: ({ created_at: at }) => <Time iso={at} form="exact" /> },
  {
    title: "Level",
    isCorner: true,
    cell: ({ level }) => (
      <Badge tone={level === "error" ? "bad" : level === "warn" ? "warn" : "neutral"}>
        {titled(level)}
      </Badge>
    ),
  },
  { title: "Message", cell: ({ message }) => message },
];

function Messages({ events }: { readonly events: JobEvents | undefined }) {
  return (
    <Panel title="Events" isFlush>
      <Table
        label="Events"
        columns={MESSAGE_COLUMNS}
        rows={events?.data}
        keyOf={({ id }) => id}
        empty={<p class="empty">No events yet.</p>}
      />
    </Panel>
  );
}
