"""
Runs features on AWS: Lambda functions, DynamoDB, S3 and SQS.

The handlers are `submit.handler`, `status.handler`, `upload.handler` and
`worker.handler`; `deploy/aws` has the stacks that run them.
"""
