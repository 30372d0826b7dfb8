import { MemorySlots } from "../../src/platform/cluster/parallel-slots.ts";
import { describeParallelSlots } from "./parallel-slots.ts";

describeParallelSlots(async () => new MemorySlots());
