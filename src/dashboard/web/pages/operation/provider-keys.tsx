import { Badge, Time } from "../../components/display.tsx";
import { failureText, type KeyFailure } from "./answers.ts";

interface MeasuredEndpoint {
  /** Ends with # and the position of the key, if the provider has several. */
  readonly id: string;
  readonly circuit: "closed" | "open" | "half-open";
  readonly running: number;
}

interface ProviderKey {
  readonly key_prefix: string;
  readonly weight?: number;
}

interface ProviderKeysProps {
  readonly keys: readonly ProviderKey[];
  readonly endpoints: readonly MeasuredEndpoint[];
  /** The last failures of the provider's keys, over all instances. */
  readonly failures: readonly KeyFailure[];
}

/** The keys of a provider, with their state on the answering instance and their last failure on any. */
export function ProviderKeys({ keys, endpoints, failures }: ProviderKeysProps) {
  const states = keys.map((key, index) => {
    const position = index + 1;
    const ofKey = keys.length === 1 ? endpoints : endpoints.filter(({ id }) => isOf(id, position));
    const open = ofKey.filter(({ circuit }) => circuit !== "closed").length;
    return { key, position, open, failure: failures.find((one) => one.key === position) };
  });
  const failing = states.filter(({ open }) => open > 0).length;
  return (
    <details class="fold" open={failing > 0}>
      <summary>
        {keys.length === 1 ? "1 key" : `${keys.length} keys`}
        {failing > 0 && <span class="bad">, {failing} failing</span>}
      </summary>
      <ul class="plain">
        {states.map(({ key, position, open, failure }) => (
          <li key={position}>
            <span class="code">{key.key_prefix}…</span>{" "}
            {key.weight !== undefined && `weight ${key.weight} `}
            {open > 0 ? <Badge tone="bad">Circuit open</Badge> : <Badge tone="good">In use</Badge>}
            <span class="sub">
              {failure === undefined ? (
                "No failure recorded"
              ) : (
                <>
                  Last failure: {failureText(failure)}, <Time iso={failure.failed_at} />
                </>
              )}
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function isOf(endpointId: string, position: number): boolean {
  return endpointId.slice(endpointId.lastIndexOf("#")) === `#${position}`;
}
