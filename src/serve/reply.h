/* reply.h - replies in the form of OpenAI's API: whole or as a stream. */
#pragma once

#include "http/http.h"
#include "library/served.h"
#include "serve/request.h"

/* sheaf__reply - submits a request to the engine and replies to it; takes the request over, which
 * has its messages if it is for a chat.
 *   model    its number
 *   system   message of conversations without one; NULL
 *   max_new  tokens of an answer where the request does not say */
void sheaf__reply(sheaf__exchange *exchange, sheaf__engine *engine, const sheaf__served *served,
                  int model, sheaf__request *request, const char *system, int64_t max_new);
/* sheaf__reply_error - by the status's code; takes it. */
void sheaf__reply_error(sheaf__exchange *exchange, sheaf_status *st);
