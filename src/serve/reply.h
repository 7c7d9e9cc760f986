/* reply.h - answers in the form of OpenAI's API: whole, or piece by piece. */
#pragma once

#include "http/http.h"
#include "library/served.h"
#include "serve/request.h"

/* sheaf__reply - asks what a request says, and replies to it; takes the request over, which has its
 * messages where it is of a chat.
 *   model    its number
 *   system   message of conversations without one; NULL
 *   max_new  tokens of an answer where the request does not say */
void sheaf__reply(sheaf__exchange *exchange, sheaf__engine *engine, const sheaf__served *served,
                  int model, sheaf__request *request, const char *system, int64_t max_new);
/* sheaf__reply_error - by the status's code; takes it. */
void sheaf__reply_error(sheaf__exchange *exchange, sheaf_status *st);
