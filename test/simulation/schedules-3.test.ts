import { testSchedules } from "./schedules.ts";

testSchedules(3);
