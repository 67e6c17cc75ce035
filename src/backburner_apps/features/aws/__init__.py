"""
Features on AWS: Lambda functions, records in DynamoDB, contents in S3, jobs by SQS.

The handlers are `submit.handler`, `status.handler`, `upload.handler` and
`worker.handler`; `deploy/aws` has the stacks that run them.
"""
