import type { Provider } from "../providers/interface.ts";
import { createSandboxProvider } from "./chat-provider.ts";
import {
  SandboxFineTuning,
  type SandboxTuningDependencies,
} from "./tuning/fine-tuning-provider.ts";

/** Returns the sandbox with all its capabilities, training included. */
export function createSandbox(dependencies: SandboxTuningDependencies): Provider {
  return { ...createSandboxProvider(dependencies), train: new SandboxFineTuning(dependencies) };
}
