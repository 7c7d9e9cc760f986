/* gpu_faults.h - see gpu_faults.c, which a build without emulated GPUs leaves out. */
#pragma once

__attribute__((weak)) void gpu_faults_before(long long step);
