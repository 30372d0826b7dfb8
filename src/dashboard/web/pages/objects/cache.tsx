import { Button } from "../../components/controls.tsx";
import { Empty, Figure, Figures, Panel, Time } from "../../components/display.tsx";
import { ActionMenu } from "../../components/menu.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { bytes, integer, usd } from "../../format.ts";
import { useResource } from "../../resource.ts";
import { useConfirmedCall } from "./object-list.tsx";

interface CachedModel {
  readonly model: string;
  readonly entries: number;
  readonly bytes: number;
  readonly hits: number;
  readonly last_used_at: string;
}

interface CacheState {
  readonly entries: number;
  readonly bytes: number;
  readonly hits: number;
  readonly saved_usd: number;
  readonly models: readonly CachedModel[];
}

export function CacheSection() {
  const { data, error, reload } = useResource<CacheState>("objects/cache", true);
  const { ask, dialog } = useConfirmedCall();
  const clear = (model?: string) =>
    ask({
      ...{ title: "Clear the response cache?", action: "Clear cache", done: "Cleared the cache." },
      ...{ method: "DELETE", onDone: reload },
      path: model === undefined ? "v1/cache" : `v1/cache?model=${encodeURIComponent(model)}`,
      children: (
        <>
          The cached answers of <b>{model ?? "all models"}</b> are deleted. The next identical
          request calls a provider and is charged.
        </>
      ),
    });
  const columns: Column<CachedModel>[] = [
    { title: "Model", cell: ({ model }) => model },
    { title: "Answers", isNumber: true, cell: ({ entries }) => integer(entries) },
    { title: "Hits", isNumber: true, cell: ({ hits }) => integer(hits) },
    { title: "Size", isNumber: true, cell: (cached) => bytes(cached.bytes) },
    { title: "Last used", isSecondary: true, cell: ({ last_used_at: at }) => <Time iso={at} /> },
    {
      title: "Actions",
      isAction: true,
      cell: ({ model }) => (
        <ActionMenu
          label={`Actions for ${model}`}
          items={[
            {
              ...{ label: "Clear", icon: "trash-2", isDanger: true, needs: "cache:manage" },
              onSelect: () => clear(model),
            },
          ]}
        />
      ),
    },
  ];
  return (
    <>
      <Figures>
        <Figure
          label="Saved"
          value={data && usd(data.saved_usd)}
          note="Charges avoided by cached answers"
        />
        <Figure label="Hits" value={data && integer(data.hits)} />
        <Figure label="Answers" value={data && integer(data.entries)} />
        <Figure label="Size" value={data && bytes(data.bytes)} />
      </Figures>
      <Panel
        title="Answers by model"
        isFlush
        aside={
          data !== undefined &&
          data.entries > 0 && (
            <Button variant="danger" needs="cache:manage" onClick={() => clear()}>
              Clear cache
            </Button>
          )
        }
      >
        <Table
          label="Answers by model"
          columns={columns}
          rows={data?.models}
          error={error}
          keyOf={({ model }) => model}
          empty={
            <Empty title="The response cache is empty">
              <p>
                Send requests with the header <code>X-Gateway-Cache: on</code>. Identical requests
                then get the cached answer without a charge.
              </p>
            </Empty>
          }
        />
      </Panel>
      {dialog}
    </>
  );
}
