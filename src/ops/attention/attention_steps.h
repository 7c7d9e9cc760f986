/* attention_steps.h - the steps of the forward pass (attention.h), for every device. */
#pragma once

#define SHEAF__ATTENTION_KEYS 64   /* after so many keys m may move, */
#define SHEAF__ATTENTION_PART 1024 /* and after so many it begins anew */
#define SHEAF__ATTENTION_MARGIN 8.0f
#define SHEAF__ATTENTION_LEAST (-0x1.fffffep127f) /* m before any key */
