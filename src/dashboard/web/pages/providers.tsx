import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { Button, Field } from "../components/controls.tsx";
import { Dialog, Form } from "../components/dialog.tsx";
import { Badge, Empty, Notice, PageHead, Panel, Time } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { duration, integer, percent } from "../format.ts";
import { rangeFrom, spanParameters } from "../range.ts";
import { useResource } from "../resource.ts";
import {
  type ConfigurationEntry,
  DeleteDialog,
  SOURCES,
  STORED_ACTIONS,
} from "./configuration-entry.tsx";
import { HistoryDialog } from "./configuration-history.tsx";
import {
  failureText,
  type GatewayFigures,
  type GatewayState,
  type KeyFailure,
  type NamedSums,
} from "./operation/answers.ts";
import { ProviderKeys } from "./operation/provider-keys.tsx";
import { CircuitHistory } from "./operation/state-panels.tsx";
import { PROVIDERS_PATH, ProviderDialog } from "./provider-dialog.tsx";

/** A provider in the answer of GET /v1/admin/providers. */
export interface Provider extends ConfigurationEntry {
  readonly type: string;
  readonly base_url?: string;
  readonly key_prefix?: string;
  readonly api_keys?: readonly { readonly key_prefix: string; readonly weight?: number }[];
  readonly health: keyof typeof STATES;
  readonly models: number;
  readonly endpoints: readonly {
    readonly id: string;
    readonly circuit: "closed" | "open" | "half-open";
    readonly running: number;
    readonly latency_ms: number | null;
    readonly last_failure: {
      readonly kind: string;
      readonly status: number | null;
      readonly at: string;
    } | null;
  }[];
}

const STATES = {
  ok: ["good", "Healthy"],
  degraded: ["warn", "Degraded"],
  down: ["bad", "Down"],
  unreachable: ["bad", "Unreachable"],
} as const;

/** The dialog that is open. */
type ProviderAction =
  | { readonly kind: "add" }
  | { readonly kind: "test" | "delete" | "edit" | "history"; readonly provider: Provider };

/** Records of providers, beside their configuration. */
interface ProviderRecords {
  readonly failures: readonly KeyFailure[];
  /** Figures of the last 24 hours, over all instances. */
  readonly sums: readonly NamedSums[] | undefined;
}

function columns(
  onAction: (action: ProviderAction) => void,
  { failures, sums }: ProviderRecords,
): Column<Provider>[] {
  const sumsOf = (id: string) => sums?.find((one) => one.id === id);
  return [
    {
      title: "Provider",
      cell: ({ id, type, base_url: url }) => (
        <span>
          <span class="strong">{id}</span>
          {(url || type !== id) && <span class="sub">{url || type}</span>}
        </span>
      ),
    },
    {
      title: "State",
      isCorner: true,
      cell: ({ health }) => <Badge tone={STATES[health][0]}>{STATES[health][1]}</Badge>,
    },
    {
      title: "Source",
      isSecondary: true,
      cell: (provider) => (
        <span>
          {SOURCES[provider.source]}
          <Keys
            provider={provider}
            failures={failures.filter((one) => one.provider === provider.id)}
          />
        </span>
      ),
    },
    { title: "Models", isNumber: true, cell: ({ models }) => integer(models) },
    {
      title: "Errors, 24 h",
      isNumber: true,
      cell: ({ id }) => {
        const { requests = 0, errors = 0 } = sumsOf(id) ?? {};
        return requests === 0 ? "—" : percent(errors / requests);
      },
    },
    {
      title: "p95, 24 h",
      isNumber: true,
      isSecondary: true,
      cell: ({ id }) => {
        const ms = sumsOf(id)?.p95_ms ?? null;
        return ms === null ? "—" : duration(ms);
      },
    },
    {
      title: "Running calls",
      isNumber: true,
      cell: ({ endpoints }) => integer(endpoints.reduce((sum, { running }) => sum + running, 0)),
    },
    {
      title: "Endpoints",
      cell: ({ endpoints }) => <Endpoints endpoints={endpoints} />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (provider) => (
        <span class="actions">
          <Button
            needs="operator"
            variant="quiet"
            label={`Test ${provider.id}`}
            onClick={() => onAction({ kind: "test", provider })}
          >
            Test
          </Button>
          {provider.source === "stored" &&
            STORED_ACTIONS.map(([kind, text]) => (
              <Button
                needs="operator"
                key={kind}
                variant="quiet"
                label={`${text} ${provider.id}`}
                onClick={() => onAction({ kind, provider })}
              >
                {text}
              </Button>
            ))}
        </span>
      ),
    },
  ];
}

interface KeysProps {
  readonly provider: Provider;
  readonly failures: readonly KeyFailure[];
}

function Keys({ provider, failures }: KeysProps) {
  const { key_prefix: prefix, api_keys: keys, endpoints } = provider;
  const all = keys ?? (prefix === undefined ? [] : [{ key_prefix: prefix }]);
  return all.length === 0 ? null : <ProviderKeys keys={all} {...{ endpoints, failures }} />;
}

/** The endpoints of a provider. Failing endpoints come first. The list is folded if none is failing. */
function Endpoints({ endpoints }: Pick<Provider, "endpoints">) {
  const open = endpoints.filter(({ circuit }) => circuit !== "closed");
  if (endpoints.length === 0) return <span class="quiet">None</span>;
  return (
    <details class="fold" open={open.length > 0}>
      <summary>
        {endpoints.length === 1 ? "1 endpoint" : `${integer(endpoints.length)} endpoints`}
        {open.length > 0 && <span class="bad">, {open.length} failing</span>}
      </summary>
      <ul class="plain">
        {[...open, ...endpoints.filter((item) => !open.includes(item))].map((endpoint) => (
          <li key={endpoint.id}>
            <span class="code">{endpoint.id}</span>{" "}
            {endpoint.circuit !== "closed" && <Badge tone="bad">circuit {endpoint.circuit}</Badge>}
            <span class="sub">
              {endpoint.last_failure !== null && (
                <>
                  Last failure:{" "}
                  {failureText({
                    failure_kind: endpoint.last_failure.kind,
                    failure_status: endpoint.last_failure.status,
                  })}
                  , <Time iso={endpoint.last_failure.at} />.{" "}
                </>
              )}
              {endpoint.latency_ms === null ? "No answer yet" : duration(endpoint.latency_ms)},{" "}
              {integer(endpoint.running)} running
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** The configured providers, with their health as seen by the instance that answers. */
export function ProvidersPage() {
  const [action, setAction] = useState<ProviderAction>();
  const { data, error, reload } = useResource<{ instance_id: string; data: Provider[] }>(
    PROVIDERS_PATH,
  );
  const state = useResource<GatewayState>("operation/state");
  const [span] = useState(() => new URLSearchParams(spanParameters(rangeFrom("24h", Date.now()))));
  const figures = useResource<GatewayFigures>(`operation/figures?${span}`);
  const records = { failures: state.data?.key_failures ?? [], sums: figures.data?.providers };
  const refresh = () => {
    reload();
    state.reload();
    figures.reload();
  };
  return (
    <>
      <PageHead title="Providers">
        <Button onClick={refresh}>Refresh</Button>
        <Button needs="operator" variant="primary" onClick={() => setAction({ kind: "add" })}>
          Add provider
        </Button>
      </PageHead>
      <Panel
        title="Providers and health"
        aside={
          data && (
            <span class="quiet" title={data.instance_id}>
              Health as seen by one instance
            </span>
          )
        }
        isFlush
      >
        <Table
          label="Providers"
          columns={columns(setAction, records)}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={
            <Empty title="No providers yet">
              <p>Add a provider to offer its models.</p>
            </Empty>
          }
        />
      </Panel>
      <CircuitHistory state={state} />
      <ActionDialog action={action} onChanged={reload} onClose={() => setAction(undefined)} />
    </>
  );
}

interface ActionDialogProps {
  readonly action: ProviderAction | undefined;
  onChanged(): void;
  onClose(): void;
}

function ActionDialog({ action, onChanged, onClose }: ActionDialogProps) {
  if (action === undefined) return null;
  if (action.kind === "add")
    return <ProviderDialog edited={undefined} {...{ onChanged, onClose }} />;
  const { kind, provider } = action;
  if (kind === "edit") return <ProviderDialog edited={provider} {...{ onChanged, onClose }} />;
  if (kind === "test") return <TestDialog {...{ provider, onClose }} />;
  if (kind === "history") {
    return (
      <HistoryDialog
        path={PROVIDERS_PATH}
        kind="provider"
        entry={provider}
        {...{ onChanged, onClose }}
      />
    );
  }
  return (
    <DeleteDialog
      path={PROVIDERS_PATH}
      kind="provider"
      entry={provider}
      onDeleted={onChanged}
      onClose={onClose}
    >
      New requests no longer use <b>{provider.id}</b>. Running requests end as they began.
    </DeleteDialog>
  );
}

/** The result of POST /v1/admin/providers/:id/test. */
interface TestResult {
  readonly ok: boolean;
  readonly latency_ms: number;
  readonly sent: readonly string[];
  readonly models?: readonly string[];
  readonly message?: string;
}

const SHOWN_MODELS = 5;

/** Tests a provider, and shows its answer. */
function TestDialog({ provider, onClose }: { readonly provider: Provider; onClose(): void }) {
  const [model, setModel] = useState("");
  const [result, setResult] = useState<TestResult>();
  const test = async () => {
    setResult(undefined);
    const body = model === "" ? {} : { model };
    setResult(await call("POST", `v1/admin/providers/${provider.id}/test`, { body }));
  };
  return (
    <Dialog title={`Test ${provider.id}`} onClose={onClose}>
      <Form submit="Run test" cancel="Close" onCancel={onClose} onSubmit={test}>
        <Field
          label="Model"
          value={model}
          onInput={setModel}
          suggestions={result?.models ?? []}
          placeholder="None"
          hint="The test requests the provider's list of models. If you name a model, it also sends a chat with one token of output, which the provider may charge."
        />
        {result !== undefined && <TestAnswer result={result} />}
      </Form>
    </Dialog>
  );
}

function TestAnswer({ result }: { readonly result: TestResult }) {
  const { ok, latency_ms: latencyMs, sent, models, message } = result;
  return (
    <Notice tone={ok ? "good" : "bad"}>
      <p>
        {ok
          ? `The provider answered after ${duration(latencyMs)}.`
          : (message ?? "The test failed.")}
      </p>
      <ul class="plain">
        {sent.map((request) => (
          <li key={request} class="code">
            {request}
          </li>
        ))}
      </ul>
      {models !== undefined && (
        <p>
          {integer(models.length)} models: {models.slice(0, SHOWN_MODELS).join(", ")}
          {models.length > SHOWN_MODELS && "…"}
        </p>
      )}
    </Notice>
  );
}
